"""Says what bare asserts compared when one ends a program; Python itself says only where. Read by the model, not by people."""

import ast
import builtins
import linecache
import os
import signal
import sys

FAILURES_MAX = 4
SECONDS_MAX = 5


def tell(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    try:
        while trace.tb_next:
            trace = trace.tb_next
        source = "".join(linecache.getlines(trace.tb_frame.f_code.co_filename))
        for node in ast.walk(ast.parse(source)):
            for _, body in ast.iter_fields(node):
                if isinstance(body, list):
                    follow(body, trace)
    except BaseException:
        pass  # The traceback is there already; whatever goes wrong here must not hide it.


def follow(body, trace):
    """The assert that failed, and those right after it, which would have been next."""
    here = [isinstance(node, ast.Assert) and node.lineno <= trace.tb_lineno <= node.end_lineno for node in body]
    if True not in here:
        return
    signal.alarm(SECONDS_MAX)  # One that hangs ends the program, which has failed already.
    failures = 0
    for node in body[here.index(True):]:
        if not isinstance(node, ast.Assert) or failures == FAILURES_MAX:
            return
        failures += fails(node.test, trace.tb_frame)


def fails(test, frame):
    def value(part):
        return eval(compile(ast.Expression(part), "assert", "eval"), frame.f_globals, frame.f_locals)

    left = test.left if isinstance(test, ast.Compare) else test
    calls = [part for part in ast.walk(left) if isinstance(part, ast.Call) and not is_builtin(part.func)]
    tested = calls[0] if calls else left
    wanted = ""
    try:
        if value(test):
            return False
        said = f"is {repr(value(tested))[:300]}"
        if tested is left and isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
            wanted = f", not {repr(value(test.comparators[0]))[:300]}"
    except Exception as error:
        said = f"raises {type(error).__name__}: {error}"[:300]
    print(f"{ast.unparse(tested)[:300]} {said}{wanted}", file=sys.stderr)
    return True


def is_builtin(function):
    return isinstance(function, ast.Name) and hasattr(builtins, function.id)


sys.excepthook = tell

# Whoever has a file of this name gets it as well.
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = this
