# Finds MAGMA below $ENV{MAGMA_HOME} or CMake's own search paths, and makes the target torch::magma.
find_library(MAGMA_LIBRARIES magma HINTS $ENV{MAGMA_HOME} PATH_SUFFIXES lib)
find_path(MAGMA_INCLUDE_DIR magma.h HINTS $ENV{MAGMA_HOME} PATH_SUFFIXES include)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MAGMA DEFAULT_MSG MAGMA_LIBRARIES MAGMA_INCLUDE_DIR)

if(MAGMA_FOUND AND NOT TARGET torch::magma)
  add_library(torch::magma INTERFACE IMPORTED)
  set_target_properties(torch::magma PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${MAGMA_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${MAGMA_LIBRARIES}"
    # links MAGMA although the model calls none of its functions
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")
endif()
