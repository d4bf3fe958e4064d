from .online.engine import (
    OutOfBudget as OutOfBudget,
)
from .online.runtime import (
    DtrRuntime as DtrRuntime,
    Report as Report,
)
from .step import (
    Step as Step,
    apply as apply,
)
