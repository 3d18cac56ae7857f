// Print where this version of CPython has what is read of it, as `FrameLayout` and `CodeLayout` name it.
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"

#define IS(name, value) printf("%s %zu\n", name, (size_t)(value))
#define AT(name, type, member) IS(name, offsetof(type, member))

int main(void) {
    AT("interpreters", _PyRuntimeState, interpreters.head);
    AT("next_interpreter", PyInterpreterState, next);
    AT("threads", PyInterpreterState, threads.head);
    AT("next_thread", PyThreadState, next);
    AT("thread_id", PyThreadState, thread_id);
#if PY_VERSION_HEX < 0x030d0000
    AT("current", PyThreadState, cframe);
    IS("through", 1);
    AT("frame", _PyCFrame, current_frame);
    AT("outer", _PyCFrame, previous);
    AT("code", _PyInterpreterFrame, f_code);
    AT("instruction", _PyInterpreterFrame, prev_instr);
#else
    AT("current", PyThreadState, current_frame);
    IS("through", 0);
    IS("frame", 0);
    IS("outer", 0);
    AT("code", _PyInterpreterFrame, f_executable);
    AT("instruction", _PyInterpreterFrame, instr_ptr);
#endif
    AT("previous", _PyInterpreterFrame, previous);
#if PY_VERSION_HEX < 0x030c0000
    AT("entry", _PyInterpreterFrame, is_entry);
    IS("entry_value", 1);
    IS("has_code", 1);
#else
    AT("entry", _PyInterpreterFrame, owner);
    IS("entry_value", FRAME_OWNED_BY_CSTACK);
    IS("has_code", 0);
#endif
    AT("qualname", PyCodeObject, co_qualname);
    AT("linetable", PyCodeObject, co_linetable);
    AT("hash", PyASCIIObject, hash);
    AT("filename", PyCodeObject, co_filename);
    AT("first_line", PyCodeObject, co_firstlineno);
    AT("instructions", PyCodeObject, co_code_adaptive);
    IS("ascii_size", sizeof(PyASCIIObject));
    IS("compact_size", sizeof(PyCompactUnicodeObject));
    return 0;
}
