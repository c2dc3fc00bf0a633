// Stores measured sensitivities in a file, so that another budget needs no new measurement.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "allocate/candidates.h"
#include "allocate/sensitivity.h"

namespace walsh {

// Returns the text of a file of sensitivities. Returns nothing if there is no file (after symbolic
// links) or `path` is empty. Throws io, bad_input or limit naming the file if it cannot be read,
// and bad_input if it contains no curves, so that this is known before anything is measured.
std::optional<std::string> read_sensitivity(const std::string& path);

// Returns the sensitivities as JSON. `conditions` describes what the measurement depends on besides
// the tensors, which is the text, the probe, the calibration and the recipe.
std::string format_sensitivity(const Candidates& candidates, const Sensitivity& sensitivity,
                               std::string_view conditions);

// Returns the curve of each tensor. Throws bad_input naming `where` unless the file is complete and
// was measured under the same conditions.
std::map<std::string, DamageCurve> parse_curves(std::string_view json, const std::string& where,
                                                std::string_view conditions);

// Does the same for the tensors of `candidates`, which may have other formats; throws bad_input if
// a tensor is missing.
Sensitivity parse_sensitivity(std::string_view json, const std::string& where,
                              const Candidates& candidates, std::string_view conditions);

}  // namespace walsh
