#pragma once

// Python.h must come before any standard header.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
