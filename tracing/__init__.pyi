from .alternatives import (
    with_alternatives as with_alternatives,
)
from .captured import (
    Call as Call,
)
from .captured import (
    Captured as Captured,
)
from .captured import (
    Ref as Ref,
)
from .captured import (
    Resident as Resident,
)
from .captured import (
    TensorSpec as TensorSpec,
)
from .recorder import (
    Recorder as Recorder,
)
from .recorder import (
    record as record,
)
from .recorder import (
    record_workload as record_workload,
)
from .trace import (
    capture as capture,
)
from .workload import (
    ModelFactory as ModelFactory,
)
from .workload import (
    Workload as Workload,
)
