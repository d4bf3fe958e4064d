"""What ``from rematbench import ...`` offers, and where each name is (read at run time, too)."""

from .graphs.errors import (
    BudgetError as BudgetError,
)
from .graphs.errors import (
    CaptureError as CaptureError,
)
from .graphs.errors import (
    ConfigError as ConfigError,
)
from .graphs.errors import (
    ExecutionError as ExecutionError,
)
from .graphs.errors import (
    GraphError as GraphError,
)
from .graphs.errors import (
    Infeasible as Infeasible,
)
from .graphs.errors import (
    InvalidPlan as InvalidPlan,
)
from .graphs.errors import (
    NotApplicable as NotApplicable,
)
from .graphs.errors import (
    PlanError as PlanError,
)
from .graphs.errors import (
    RematbenchError as RematbenchError,
)
from .graphs.files import (
    read_graph as read_graph,
)
from .graphs.files import (
    read_plan as read_plan,
)
from .graphs.files import (
    write_graph as write_graph,
)
from .graphs.files import (
    write_plan as write_plan,
)
from .graphs.ir import (
    Graph as Graph,
)
from .graphs.ir import (
    Implementation as Implementation,
)
from .graphs.ir import (
    Op as Op,
)
from .graphs.ir import (
    Phase as Phase,
)
from .graphs.ir import (
    Value as Value,
)
from .graphs.plan import (
    Compute as Compute,
)
from .graphs.plan import (
    Free as Free,
)
from .graphs.plan import (
    Plan as Plan,
)
from .graphs.plan import (
    program_order as program_order,
)
from .graphs.plan import (
    with_frees as with_frees,
)
from .graphs.planning import (
    Problem as Problem,
)
from .graphs.planning import (
    Solution as Solution,
)
from .graphs.planning import (
    Strategy as Strategy,
)
from .graphs.planning import (
    Traits as Traits,
)
from .graphs.simulate import (
    Trace as Trace,
)
from .graphs.simulate import (
    simulate as simulate,
)
from .graphs.synthetic import (
    random_graph as random_graph,
)
from .graphs.synthetic import (
    unit_chain as unit_chain,
)
from .graphs.synthetic import (
    with_backward as with_backward,
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
)
from .streams.convert import (
    stream_of_graph as stream_of_graph,
)
from .streams.events import (
    EventStream as EventStream,
)
from .streams.log import (
    read_log as read_log,
)
from .streams.log import (
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
from .training.online.runtime import (
    DtrRuntime as DtrRuntime,
)
from .validator import (
    measure as measure,
)
from .zoo import (
    make_model as make_model,
)
