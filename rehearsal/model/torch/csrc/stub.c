/* torch._C: calls libtorch_python, which CMake builds. */
#include <Python.h>

extern PyObject *initModule(void);

PyMODINIT_FUNC PyInit__C(void) { return initModule(); }
