// The kernels over one broken copy of the protocol sources. Compiled once for each mutant, whose folder comes first in
// the include path (mutants.cmake).
#include "model/kernels.hpp"

namespace switchyard::model {

Kernels SWITCHYARD_MUTANT_FUNCTION() { return kernels<SWITCHYARD_MUTANT_TAG, SWITCHYARD_MUTANT_PARTS>(); }

}  // namespace switchyard::model
