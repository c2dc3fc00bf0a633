// Measured sensitivities as a file, so that another budget needs no second measurement.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "allocate/candidates.h"
#include "allocate/sensitivity.h"

namespace walsh {

// The text of a file of measured sensitivities; nothing if there is no file (behind symbolic links)
// or `path` is empty. Throws io, bad_input or limit naming the file if it cannot be read, and
// bad_input if no curves stand in it: what can be known before anything is measured.
std::optional<std::string> read_sensitivity(const std::string& path);

// JSON. `conditions` names all that the measurement depends on besides the tensors: text, probe,
// calibration, recipe.
std::string format_sensitivity(const Candidates& candidates, const Sensitivity& sensitivity,
                               std::string_view conditions);

// The curve of each tensor. Throws bad_input naming `where` unless the file is complete and was
// measured under the same conditions.
std::map<std::string, DamageCurve> parse_curves(std::string_view json, const std::string& where,
                                                std::string_view conditions);

// The same for the tensors of `candidates`, whose formats may be others; bad_input if one is
// missing.
Sensitivity parse_sensitivity(std::string_view json, const std::string& where,
                              const Candidates& candidates, std::string_view conditions);

}  // namespace walsh
