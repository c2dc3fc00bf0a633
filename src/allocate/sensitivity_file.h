// Measured sensitivities as a file, so that another budget needs no second measurement.
#pragma once

#include <string>
#include <string_view>

#include "allocate/candidates.h"
#include "allocate/sensitivity.h"

namespace walsh {

// JSON. `conditions` names all that the measurement depends on besides the tensors: text, probe,
// calibration, recipe.
std::string format_sensitivity(const Candidates& candidates, const Sensitivity& sensitivity,
                               std::string_view conditions);

// Throws bad_input naming `where` unless the file is complete, was measured under the same
// conditions and has the tensors of `candidates`, whose formats may be others.
Sensitivity parse_sensitivity(std::string_view json, const std::string& where,
                              const Candidates& candidates, std::string_view conditions);

}  // namespace walsh
