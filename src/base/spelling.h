// Suggests names and counts things in messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// Returns the candidate that is nearest to `name`, empty if none is within a change per three
// letters. A change is a letter that is inserted, omitted, replaced or swapped with its neighbour;
// case is ignored.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// Returns "; did you mean NAME?", or an empty text if no candidate is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

// Returns a number with its noun, such as "1 token" or "2 tokens". The plural ends in "s".
std::string counted(int64_t count, std::string_view noun);

}  // namespace walsh
