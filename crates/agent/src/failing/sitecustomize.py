"""Says what a bare assert compared when it ends a program; Python itself says only where. Read by the model, not by people."""

import ast
import linecache
import os
import sys


def tell(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    try:
        while trace.tb_next:
            trace = trace.tb_next
        frame = trace.tb_frame
        lines = linecache.getlines(frame.f_code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.Assert) and node.lineno <= trace.tb_lineno <= node.end_lineno:
                side = node.test.left if isinstance(node.test, ast.Compare) else node.test
                code = compile(ast.Expression(side), "assert", "eval")
                found = repr(eval(code, frame.f_globals, frame.f_locals))
                print(f"{ast.unparse(side)} is {found[:300]}", file=sys.stderr)
    except BaseException:
        pass  # The traceback is there already; whatever goes wrong here must not hide it.


sys.excepthook = tell

# Whoever has a file of this name gets it as well.
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = this
