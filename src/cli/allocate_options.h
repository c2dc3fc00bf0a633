// Defines the flags of `walsh quantize` for bit allocation, and reports about it.
#pragma once

#include <string>
#include <vector>

#include "api/allocation.h"
#include "cli/flags.h"
#include "io/json.h"

namespace walsh::cli {

class AllocateFlags {
 public:
  void add_to(Command& command);

  // Returns whether --bpw or --size was given.
  bool given() const { return bits_ != 0 || !size_.empty(); }
  // Throws usage if another allocation flag was given without --bpw or --size.
  void refuse_without_target() const;
  // Returns the files that the allocation reads, and those that it will write.
  std::vector<std::string> inputs() const;
  std::vector<std::string> outputs() const;
  // Returns the format that the base recipe has for all tensors.
  std::string first_candidate() const;
  // Runs the allocation, with a progress bar or lines on standard error.
  Allocation allocate(const std::string& folder, const Recipe& base,
                      const CalibrationRequest& calibration, ThreadPool& pool) const;

 private:
  bool knows_sensitivity() const;

  std::vector<const Flag*> refinements_;
  double bits_ = 0;
  std::vector<std::string> candidates_;
  std::string size_, text_, sensitivity_;
  int64_t tokens_ = 4096, evaluations_ = 16;
};

// Returns a table of the tensors and of the predicted and measured values.
std::string allocation_text(const Allocation& allocation);
// Returns the same as JSON, for --json and for a recipe's `about`.
Json allocation_json(const Allocation& allocation);

}  // namespace walsh::cli
