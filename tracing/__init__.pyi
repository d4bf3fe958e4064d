from .alternatives import (
    with_alternatives as with_alternatives,
)
from .captured import (
    Captured as Captured,
    Ref as Ref,
    Resident as Resident,
    TensorSpec as TensorSpec,
    TorchCall as TorchCall,
)
from .costless import (
    costless_parameters as costless_parameters,
)
from .recorder import (
    Recorder as Recorder,
    record as record,
    record_workload as record_workload,
)
from .trace import (
    capture as capture,
)
from .workload import (
    ModelFactory as ModelFactory,
    Workload as Workload,
)
