#pragma once

#include <c10/macros/Export.h>

// Removes a name of shared memory, as in "/something"; false if there was none.
C10_API bool libshm_remove(const char* name);
