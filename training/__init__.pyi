from .online.engine import (
    OutOfBudget as OutOfBudget,
)
from .online.runtime import (
    DtrRuntime as DtrRuntime,
)
from .online.runtime import (
    Report as Report,
)
from .step import (
    Step as Step,
)
from .step import (
    apply as apply,
)
