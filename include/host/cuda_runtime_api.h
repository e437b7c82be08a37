/* The host flavour has one header for the runtime's C and C++ faces. */
#include "cuda_runtime.h"
