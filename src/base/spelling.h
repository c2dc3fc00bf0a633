// Spells names and numbers for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// Returns the candidate nearest to `name`, counting letters that are inserted, omitted, changed or
// swapped with their neighbour and ignoring case; empty if none is within a change per three
// letters.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// Returns "; did you mean NAME?", or an empty text if no candidate is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

// Returns "1 token" or "2 tokens": a number with its noun, whose plural ends in "s".
std::string counted(int64_t count, std::string_view noun);

}  // namespace walsh
