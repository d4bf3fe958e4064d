"""A user's own model: ``model.target=package.module:function``.

Whatever is wrong with it is one line that says what, and where in the user's own files.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.nn.parameter import is_lazy

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError, is_out_of_memory
from rematbench.base.origin import accuse, own_place
from rematbench.tracing.costless import asked_for
from rematbench.tracing.workload import Workload

# A file of the current folder whose name is Python's or a used package's is imported under this
# prefix, so that those who import the other still get it.
_BESIDE = "beside"
_WANTED = (
    "(module, batch), with module(*batch) a scalar loss, or (module, batch, loss), with "
    "loss(module, *batch) one"
)


def make_python_model(target: str, **options: Any) -> Workload:
    """Build a user's own model.

    Args:
        target: ``package.module:function``, in the current folder or importable. The function gets
            ``options`` and returns a :class:`Workload`; or ``(module, batch)``, where
            ``module(*batch)`` is the loss; or ``(module, batch, loss)``, where
            ``loss(module, *batch)`` is. ``batch`` is a tuple of tensors.

    Raises:
        ConfigError: the function cannot be found, raises, or returns something else.
    """
    where = f"model.target={target}"
    make = _find(where, str(target))
    made = call(where, make, options)
    if isinstance(made, Workload):
        return made
    match made:
        case (nn.Module() as module, batch):
            return _workload(where, module, batch, _own_loss)
        case (nn.Module() as module, batch, loss):
            if not callable(loss):
                raise ConfigError(
                    f"{where}: its loss is {_label(loss)}, not a function; return one that "
                    "computes it: loss(module, *batch)"
                )
            return _workload(where, module, batch, loss)
    raise ConfigError(f"{where}: returned {_label(made)}; return {_WANTED}")


def call(where: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call a function that makes a model.

    Raises:
        ConfigError: it does not take the options, or raises.
    """
    with suppress(TypeError, ValueError):  # a built-in function has no signature, say
        _check_options(where, inspect.signature(make), options)
    try:
        return make(**options)
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error) or (isinstance(error, ConfigError) and not own_place(error)):
            raise
        raise ConfigError(f"{where} raised {accuse(error)}") from error


def _check_options(where: str, signature: inspect.Signature, options: Mapping[str, Any]) -> None:
    try:
        signature.bind(**options)
    except TypeError as error:
        accepted = ", ".join(k for k in signature.parameters if k not in ("name", "options"))
        raise ConfigError(f"{where}: {error}; its options are: {accepted or 'none'}") from error


def _find(where: str, target: str) -> Callable[..., Any]:
    place, _, name = target.partition(":")
    if place.endswith(".py") or os.sep in place:
        module = place.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise ConfigError(f"{where}: give a module, not a file: {module}:{name or 'function'}")
    if not all(part.isidentifier() for part in [*place.split("."), *name.split(".")]):
        raise ConfigError(f"{where}: give package.module:function")
    found: Any = _module(where, place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{where}: {_lacks(place, found, part)}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(
            f"{where}: {name} is {_label(found)}, not a function; give one that returns {_WANTED}"
        )
    made: Callable[..., Any] = found
    return made


def _module(where: str, place: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: nobody else is to find the user's random.py
    try:
        return _imported(where, place)
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error) or (isinstance(error, ConfigError) and not own_place(error)):
            raise
        absent = isinstance(error, ModuleNotFoundError) and own_place(error) is None
        if absent and f"{place}.".startswith(f"{getattr(error, 'name', None)}."):
            missing = str(getattr(error, "name", None))
            raise ConfigError(f"{where}: {_no_module(missing)}") from error
        raise ConfigError(
            f"{where}: importing {place} raised {accuse(error)}{_shadowed(error)}"
        ) from error


def _imported(where: str, place: str) -> ModuleType:
    """Import a module; the current folder's goes before an installed one of the same name.

    Where Python's own, or a package that is in use, has the name, a file is imported under an
    alias; a package is refused, since its own imports would mix the two.
    """
    top = place.partition(".")[0]
    spec = PathFinder.find_spec(top, [os.getcwd()])
    known = _origin(top)
    if spec is None or spec.origin is None or known is None or _is_same(known, spec.origin):
        return importlib.import_module(place)
    if top not in sys.stdlib_module_names and top not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        sys.modules[top] = module  # its submodules are found by its own path
        try:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[top]
            raise
        return importlib.import_module(place)
    if spec.submodule_search_locations is not None:
        raise ConfigError(
            f"{where}: your package {top} has the name of one that is in use ({known}); rename it"
        )
    return _under_alias(place, spec)


def _is_same(one: str, other: str) -> bool:
    """Are two paths one file? A package may have been imported through a link."""
    return os.path.realpath(one) == os.path.realpath(other)


def _under_alias(place: str, spec: ModuleSpec) -> ModuleType:
    alias = f"{_BESIDE}_{place}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, spec.origin) or spec
        module = importlib.util.module_from_spec(spec)
        assert spec.loader is not None
        spec.loader.exec_module(module)
        sys.modules[alias] = module
    return sys.modules[alias]


def _origin(name: str) -> str | None:
    """The file that Python has imported a top module from, or would; None where there is none."""
    loaded = sys.modules.get(name)
    spec = getattr(loaded, "__spec__", None) if loaded else importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return str(getattr(loaded, "__file__", None) or f"Python's {name}") if loaded else None
    return str(spec.origin)


def _no_module(name: str) -> str:
    here = sorted(path.stem for path in Path().iterdir() if path.suffix == ".py" or path.is_dir())
    hint = did_you_mean(name, here)
    return (
        f"there is no module {name!r}; {hint}it is looked for on PYTHONPATH, among the installed "
        f"packages and in the current folder ({os.getcwd()})"
    )


def _lacks(place: str, found: Any, part: str) -> str:
    own = [
        name
        for name, each in vars(found).items()
        if callable(each) and getattr(each, "__module__", None) == getattr(found, "__name__", "")
    ]
    file = getattr(found, "__file__", None)
    hint = did_you_mean(part, own).rstrip() or f"it has: {', '.join(own) or 'none'}"
    return f"{place}{f' ({file})' if file else ''} has no function {part!r}; {hint}"


def _shadowed(error: BaseException) -> str:
    """What an import needs to know of a file of the current folder that it did not get."""
    name = str(getattr(error, "name", None) or "").partition(".")[0]
    file = Path(f"{name}.py")
    if not isinstance(error, ImportError) or not name or not file.is_file():
        return ""
    return f"; {name} is Python's or an installed package's, rename your {file}"


def _label(found: Any) -> str:
    """What somebody gave: its type, and a tensor's shape, a dict's keys, a tuple's items."""
    if isinstance(found, Tensor):
        return f"a tensor of shape {tuple(found.shape)}"
    if isinstance(found, Mapping):
        return f"a dict of {', '.join(map(str, found)) or 'nothing'}"
    if isinstance(found, (tuple, list)):
        items = ", ".join(type(item).__name__ for item in found)
        return f"a {type(found).__name__} of {items or 'nothing'}"
    return "None" if found is None else f"a value of type {type(found).__name__}"


def _own_loss(module: nn.Module, *batch: Tensor) -> Tensor:
    loss: Tensor = module(*batch)
    return loss


def _workload(where: str, module: nn.Module, batch: Any, loss: Callable[..., Tensor]) -> Workload:
    if not isinstance(batch, (tuple, list)):
        remedy = "a tuple of tensors, such as (x,)"
        if isinstance(batch, Mapping):
            remedy = "its tensors as a tuple, and a loss that takes them in that order"
        raise ConfigError(f"{where}: its batch is {_label(batch)}; give {remedy}")
    _check_batch(where, batch)
    _check_module(where, module)
    given = tuple(batch)

    def make_batch() -> tuple[Tensor, ...]:
        mode, device = detect_fake_mode(), torch.get_default_device()
        made = given if mode is None else tuple(mode.from_tensor(item) for item in given)
        return tuple(item.to(device) for item in made)  # where a factory function would make it

    return Workload(where.partition(":")[2], module, make_batch, loss)


def _check_batch(where: str, batch: Sequence[Any]) -> None:
    for i, item in enumerate(batch):
        what = f"{where}: item {i} of the batch"
        if not isinstance(item, Tensor):
            raise ConfigError(f"{what} is {_label(item)}, no tensor; give tensors only")
        if item.layout is not torch.strided or item.is_nested:
            kind = "nested" if item.is_nested else str(item.layout)
            raise ConfigError(f"{what} is {kind}; give a dense tensor: to_dense() makes one")
        if item.is_meta:
            raise ConfigError(f"{what} is on the meta device, without data; give a real tensor")
        if item.requires_grad and item.is_leaf:
            raise ConfigError(f"{what} needs a gradient; only parameters get one: detach() it")
        if item.grad_fn is not None:
            raise ConfigError(
                f"{what} hangs on a computation of its own ({item.grad_fn.name()}); detach() it"
            )


def _check_module(where: str, module: nn.Module) -> None:
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in named:
        what = f"{where}: {name}"
        if is_lazy(tensor):
            raise ConfigError(
                f"{what} has no shape yet (a lazy layer); run the module on a batch once before "
                "you return it"
            )
        if tensor.is_meta and not asked_for():
            raise ConfigError(
                f"{what} is on the meta device, without data; build the model on a real one "
                "(to_empty() and initialise it)"
            )
        if tensor.layout is not torch.strided:
            raise ConfigError(f"{what} is {tensor.layout}; give it as a dense tensor")
