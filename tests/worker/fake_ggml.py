"""A ggml of forty lines with the same entry points, and modules for it: loads what is loaded, dies where told to."""

from __future__ import annotations

import subprocess
from pathlib import Path

BASE = r"""
#include <stddef.h>
typedef struct { const char * name; size_t n; const char ** devices; } reg;
typedef void (*log_fn)(int, const char *, void *);
static log_fn the_log;
void ggml_log_set(log_fn f, void * data) { (void) data; the_log = f; }
void fake_log(const char * text) { if (the_log) the_log(4, text, 0); }
const char * ggml_version(void) { return "9.9"; }
const char * ggml_commit(void) { return "fake"; }
const char * ggml_backend_reg_name(reg * r) { return r->name; }
size_t ggml_backend_reg_dev_count(reg * r) { return r->n; }
const char * ggml_backend_reg_dev_get(reg * r, size_t i) { return r->devices[i]; }
const char * ggml_backend_dev_description(const char * device) { return device; }
"""
GGML = r"""
#include <dlfcn.h>
#include <stdio.h>
extern void fake_log(const char *);
void * ggml_backend_load(const char * path) {
    char line[500];
    void * handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(line, 500, "load_backend: failed to load %s: %s\n", path, dlerror());
        fake_log(line);
        return 0;
    }
    void * (*init)(void) = (void * (*)(void)) dlsym(handle, "ggml_backend_init");
    return init ? init() : 0;
}
"""
MODULE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
typedef struct { const char * name; size_t n; const char ** devices; } reg;
extern void fake_log(const char *);
static const char * devices[] = { "Fake One", "Fake Two" };
static reg it = { NAME, DEVICES, devices };
#ifdef SCORE
int ggml_backend_score(void) { return SCORE; }
#endif
reg * ggml_backend_init(void) {
    printf("a driver writes what it likes\n");
#ifdef SAYS
    fake_log(SAYS "\n");
#endif
    DOES;
    return OK ? &it : NULL;
}
"""


def _compile(source: str, target: Path, *words: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    text = target.with_suffix(f"{target.suffix}.c")
    text.write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", target, text, *words, "-ldl"], check=True)
    text.unlink()
    return target


def libraries(package: Path) -> Path:
    """Core libraries, laid out as in a package of llama.cpp; gives their folder."""
    folder = package / "llama_cpp" / "lib"
    base = _compile(BASE, folder / "libggml-base.so.0", "-Wl,-soname,libggml-base.so.0")
    _compile(GGML, folder / "libggml.so.0", "-Wl,-soname,libggml.so.0", str(base), "-Wl,-rpath,$ORIGIN")
    return folder


def module(
    path: Path, *, score: int | None = None, devices: int = 1, does: str = "", says: str = "", ok: bool = True
) -> Path:
    """One module. does: C statements of its start. says: a line of its log."""
    name = path.stem.removeprefix("libggml-").split("-")[0].upper()
    words = [f'-DNAME="{name}"', f"-DDEVICES={devices}", f"-DDOES={does or 'do {} while (0)'}", f"-DOK={int(ok)}"]
    words += [f"-DSCORE={score}"] if score is not None else []
    words += [f'-DSAYS="{says}"'] if says else []
    return _compile(MODULE, path, *words)
