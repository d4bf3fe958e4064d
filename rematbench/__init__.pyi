"""What ``from rematbench import ...`` offers, and where each name is (read at run time, too)."""

from .base.errors import (
    BudgetError as BudgetError,
    CaptureError as CaptureError,
    ConfigError as ConfigError,
    ExecutionError as ExecutionError,
    GraphError as GraphError,
    Infeasible as Infeasible,
    InvalidPlan as InvalidPlan,
    NotApplicable as NotApplicable,
    PlanError as PlanError,
    RematbenchError as RematbenchError,
)
from .graphs.builders.synthetic import (
    random_graph as random_graph,
    unit_chain as unit_chain,
    with_backward as with_backward,
)
from .graphs.files import (
    read_graph as read_graph,
    read_plan as read_plan,
    write_graph as write_graph,
    write_plan as write_plan,
)
from .graphs.ir import (
    Graph as Graph,
    Implementation as Implementation,
    Op as Op,
    Phase as Phase,
    Value as Value,
)
from .graphs.plan import (
    Compute as Compute,
    Free as Free,
    Plan as Plan,
    program_order as program_order,
    with_frees as with_frees,
)
from .graphs.planning import (
    Problem as Problem,
    Solution as Solution,
    Strategy as Strategy,
    Traits as Traits,
)
from .graphs.simulate import (
    Trace as Trace,
    simulate as simulate,
)
from .report.explained import (
    explain as explain,
)
from .strategies.checkmate.ilp import (
    CheckmateIlp as CheckmateIlp,
)
from .strategies.checkmate.rounding import (
    CheckmateRounding as CheckmateRounding,
)
from .strategies.dtr import (
    Dtr as Dtr,
)
from .streams.convert import (
    graph_of_stream as graph_of_stream,
    stream_of_graph as stream_of_graph,
)
from .streams.events import (
    EventStream as EventStream,
)
from .streams.log import (
    read_log as read_log,
    write_log as write_log,
)
from .streams.synthetic import (
    toy_chain as toy_chain,
)
from .tracing.captured import (
    Captured as Captured,
)
from .tracing.recorder import (
    record_workload as record_workload,
)
from .tracing.trace import (
    capture as capture,
)
from .tracing.workload import (
    Workload as Workload,
)
from .training import (
    apply as apply,
)
from .training.compiled.within import (
    budget as budget,
)
from .training.online.runtime import (
    DtrRuntime as DtrRuntime,
)
from .validator import (
    measure as measure,
)
from .zoo import (
    make_model as make_model,
)
