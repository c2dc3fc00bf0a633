// Spells names and numbers for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// The candidate nearest to `name`, counting letters that are inserted, omitted, changed or swapped
// with their neighbour and ignoring case. Empty if none is within one change per three letters.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// "; did you mean NAME?", or an empty text if no candidate is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

// "1 token", "2 tokens": a number with its noun, whose plural ends in "s".
std::string counted(int64_t count, std::string_view noun);

}  // namespace walsh
