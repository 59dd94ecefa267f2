"""A template is foreign code: it can neither get out nor take the machine down (nor hold it up for over 2 s)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.chat.template import choose
from engine.chat.template_source import compile_template, in_words
from engine.chat.time_limit import TimeLimitError, run_limited
from engine.errors import TemplateFailed
from engine.message import PromptMessage

DOUBLE = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = BODY %}{% endfor %}{{ ns.x }}"
PAIRS = "{% set ns = namespace(x=['a']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"

ESCAPES = [
    "{{ cycler.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('touch OWNED').read() }}",
    "{{ lipsum.__globals__['os'].popen('touch OWNED').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{0.__class__}'.format_map({'0': ''}) }}",
    "{{ ('{0.__class__}'|attr('format'))('') }}",
    "{{ ['']|map(attribute='__class__')|list }}",
    "{{ ['']|map('attr', '__class__')|list|first|attr('mro') }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__code__.co_consts }}",
    "{{ strftime_now.__closure__ }}",
    "{{ strftime_now.__self__ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ dict.mro() }}",
    "{{ dict.fromkeys(['a']) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ (1).to_bytes(1000000000, 'big') }}",
    "{{ 'x'.encode() }}",
    "{{ (messages|map('upper')).gi_frame }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m.__call__.__func__ }}",
    "{% for x in [1] %}{{ loop._iterator.__class__ }}{% endfor %}",
    "{% include 'secret.txt' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
    "{{ __import__('os') }}",
    "{{ open('OWNED', 'w') }}",
    "{{ eval('1') }}",
    "{{ 'a'|urlize }}",
]

BOMBS = [
    "{{ 'a' * 50000000 }}",
    "{{ 50000000 * 'a' }}",
    "{{ ['a'] * 50000000 }}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{% for j in range(99999) %}xxxx{% endfor %}{% endfor %}{% endset %}{{ x }}",
    "{% macro m() %}{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}{% endmacro %}"
    "{{ m() }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}",
    DOUBLE.replace("BODY", "ns.x ~ ns.x"),
    DOUBLE.replace("BODY", "ns.x + ns.x"),
    DOUBLE.replace("BODY", "ns.x * 2"),
    DOUBLE.replace("BODY", "'%s%s' % (ns.x, ns.x)"),
    DOUBLE.replace("BODY", "'%s%s' | format(ns.x, ns.x)"),
    DOUBLE.replace("BODY", "'{0}{0}'.format(ns.x)"),
    DOUBLE.replace("BODY", "'{a}{a}'.format_map({'a': ns.x})"),
    DOUBLE.replace("BODY", "ns.x.replace('a', 'aa')"),
    DOUBLE.replace("BODY", "ns.x | replace('a', 'aa')"),
    DOUBLE.replace("BODY", "ns.x.join([ns.x, ns.x])"),
    DOUBLE.replace("BODY", "[ns.x, ns.x] | join"),
    DOUBLE.replace("BODY", "[ns.x, ns.x] | string"),
    DOUBLE.replace("BODY", "[ns.x, ns.x] | tojson"),
    DOUBLE.replace("BODY", "[ns.x, ns.x] ~ ''"),
    DOUBLE.replace("BODY", "[ns.x, ns.x] | sum(start='')"),
    PAIRS + "{{ ns.x }}",
    PAIRS + "{{ ns.x == ns.x }}{{ ns.x == [ns.x[0], ns.x[1]] }}",
    PAIRS + "{{ ns.x | tojson }}",
    PAIRS + "{{ ns.x | string | length }}",
    PAIRS + "{{ ns.x in [ns.x, 1] }}",
    PAIRS + "{{ [ns.x] | unique | list }}",
    PAIRS + "{{ ns.x is eq(ns.x) }}",
    PAIRS.replace("[ns.x, ns.x]", "(ns.x, ns.x)").replace("['a']", "('a',)") + "{{ {ns.x: 1} }}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + ['a' * 8000000] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x + [i] %}{% endfor %}",
    "{{ 'a'.center(10**10) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a'.zfill(10**10) }}",
    "{{ 'a' | center(10**10) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%.1000000000f' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ 'a\n' * 1000 | indent(10**8) }}",
    "{{ ('a\n' * 1000) | indent(10**8) }}",
    "{{ ('\t' * 100000).expandtabs(10**6) }}",
    "{{ ('a,' * 4000000).split(',') | length }}",
    "{{ ('a\n' * 4000000).splitlines() | length }}",
    "{{ ('a ' * 4000000) | list | length }}",
    "{{ ('a ' * 4000000) | wordwrap(1) | length }}",
    "{{ [1] | batch(10**9, 'x') | list }}",
    "{{ [1] | slice(10**9) | list }}",
    "{{ [1, 2] | tojson(indent=10**9) }}",
    "{{ 10 ** (10 ** 10) }}",
    "{% set ns = namespace(x=10) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{{ 1.5 | round(10**9) }}",
    "{{ strftime_now('%c' * 1000000) }}",
    "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
    "{{ " + "not " * 20000 + "1 }}",
    "{{ " + "1" + "+1" * 19000 + " }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{% for i in [1] %}" * 90 + "{% endfor %}" * 90,
    "{{ a }}" * 149000,
    "x" * (1024 * 1024 + 1),
]

CHILD = """
import json, resource, sys, time
from engine.chat import template
from engine.chat.template import choose
sources = json.load(sys.stdin)
choose("{{ messages[0].content }}")
rows = []
for number, source in enumerate(sources):
    if number == N_FULL:
        template.TIME_LIMIT_S = 0.5  # the others would only take longer to end the same way
    start, start_cpu = time.monotonic(), time.process_time()
    made = choose(source)
    spent = time.process_time() - start_cpu
    rows.append([time.monotonic() - start, made.info.source, made.info.error, spent])
# ru_maxrss would count the process that started this one, from before the exec
status = open("/proc/self/status").read() if sys.platform == "linux" else ""
peak = int(status.split("VmHWM:")[1].split()[0]) if status else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"rows": rows, "peak_kib": peak if sys.platform != "darwin" else peak // 1024}))
""".replace("N_FULL", "5")


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_gets_out(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = choose(source)
    if made.info.source == "file":  # allowed to render, but only to nothing
        assert made.render([PromptMessage("user", "hi")]).text.strip() in ("", "hi", "[Undefined]")
    else:
        assert made.info.error
    assert not (tmp_path / "OWNED").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read with the resource module")
@pytest.mark.serial
def test_bombs_end_in_time_and_in_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(BOMBS), capture_output=True, text=True, timeout=110, check=True
    )
    said = json.loads(done.stdout)
    assert len(said["rows"]) == len(BOMBS)
    # on a busy machine the limit waits until a template had its share of the processor
    slow = [(BOMBS[i][:100], row) for i, row in enumerate(said["rows"]) if row[3] > 2.2 or row[0] > 2.5 + 3 * row[3]]
    assert not slow
    through = [BOMBS[i][:100] for i, row in enumerate(said["rows"]) if row[1] == "file"]
    assert not through
    assert all(row[2] and "Traceback" not in row[2] and len(row[2]) < 800 for row in said["rows"])
    assert said["peak_kib"] < 300 * 1024
    assert done.stderr == ""
    print(said["peak_kib"], max(r[0] for r in said["rows"]), max(r[3] for r in said["rows"]))


def test_an_endless_template_is_refused_from_any_thread_in_words() -> None:
    made = choose(
        "{% if messages[0].content == 'loop' %}{% for i in range(99999) %}{% for j in range(99999) %}"
        "{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}"
    )
    assert made.info.source == "file"
    caught: list[Exception] = []

    def render() -> None:
        start = time.monotonic()
        with pytest.raises(TemplateFailed, match="did not end within 2 seconds") as error:
            made.render([PromptMessage("user", "loop")])
        assert time.monotonic() - start < 6
        caught.append(error.value)

    thread = threading.Thread(target=render)
    thread.start()
    thread.join(5)
    assert caught
    assert made.render([PromptMessage("user", "fine")]).text == "fine"
    assert not [t for t in threading.enumerate() if t.name == "time-limited"]


def test_run_limited_gives_results_and_errors_through() -> None:
    assert run_limited(lambda: 5, 1) == 5
    with pytest.raises(ZeroDivisionError):
        run_limited(lambda: 1 // 0, 1)

    def forever() -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass  # an ordinary handler does not stop the interrupt

    with pytest.raises(TimeLimitError):
        run_limited(forever, 0.2)


def test_large_conversations_are_not_taken_for_bombs() -> None:
    chatml = choose(
        "{% set ns = namespace(out='') %}{% for m in messages %}"
        "{% set ns.out = ns.out ~ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' %}{% endfor %}"
        "{{ ns.out }}"
    )
    messages = [PromptMessage("user" if i % 2 == 0 else "assistant", f"{i} " * 60) for i in range(1001)]
    text = chatml.render(messages).text
    assert text.count("<|im_start|>") == 1001
    big = chatml.render([PromptMessage("user", "word " * 2_000_000)]).text
    assert len(big) > 10_000_000


def test_a_template_may_be_one_mebibyte_long() -> None:
    source = "{# " + "x" * (1024 * 1024 - 100) + " #}{{ messages[0].content }}"
    assert choose(source).info.source == "file"
    with pytest.raises(TemplateFailed, match="1 MiB"):
        in_words(lambda: compile_template(source + "x" * 200))
