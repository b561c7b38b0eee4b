"""Renders tests/golden/conversations.json with jinja2, the way Hugging Face transformers does, for the golden tests."""
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

golden = pathlib.Path(__file__).parent.parent / "tests" / "golden"


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = refuse
for path in sorted(golden.glob("*.jinja")):
    template = environment.from_string(path.read_text())
    rendered = {}
    for name, request in json.loads((golden / "conversations.json").read_text()).items():
        rendered[name] = template.render(
            messages=request["messages"],
            tools=request.get("tools"),
            add_generation_prompt=request.get("add_generation_prompt", True),
            bos_token="",
            eos_token="<|im_end|>",
        )
    text = "".join(f"=== {name}\n{text}\n" for name, text in rendered.items())
    (golden / f"template-{path.stem}.txt").write_text(text)
