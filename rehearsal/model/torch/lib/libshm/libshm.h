#pragma once

#include <c10/macros/Export.h>

// Removes shared memory by its name ("/something"); returns false if it does not exist.
C10_API bool libshm_remove(const char* name);
