// What somebody may have meant by a name that does not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace walsh {

// Of the candidates the one that is nearest to `name` in letters inserted, left out, changed or
// swapped with their neighbour, whatever their case; empty if none is near: at most one change per
// three letters.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// "; did you mean NAME?", or nothing where nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace walsh
