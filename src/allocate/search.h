// Finds the assignment of least divergence within a budget: starts from the knapsack's answer for
// the measured sensitivities and keeps variations only if measuring shows that they are better.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/sensitivity.h"
#include "eval/meters.h"

namespace walsh {

struct Measured {
  Assignment assignment;
  double damage = 0;  // it is the sum of the tensors' own damages
  Estimate kld;
};

// Measures the divergence of an assignment; this is expensive.
using Measure = std::function<Estimate(const Assignment&)>;

class AllocationSearch {
 public:
  // `budget` is the bytes of all free tensors. The references must outlive the search.
  AllocationSearch(const Candidates& candidates, const Sensitivity& sensitivity, uint64_t budget,
                   Measure measure);

  // Returns the least damaging assignment that fits with one format for all layers, and one for
  // embedding and head if these are free. Throws limit if none fits.
  Measured uniform();
  // Returns the best of the uniform assignment, the knapsack's answer and up to `evaluations`
  // variations.
  Measured best(int64_t evaluations);
  // Returns the sum of the tensors' own damages.
  double damage(const Assignment& assignment) const;
  uint64_t bytes(const Assignment& assignment) const;  // it counts the free tensors

  // Returns all measured assignments, in the order of measurement.
  const std::vector<Measured>& history() const { return history_; }
  const Measured& measure(const Assignment& assignment);

 private:
  using Group = std::vector<size_t>;  // it has indices of tensors
  std::vector<Group> make_groups() const;
  // Returns the knapsack's answer if the damage of tensor t were factors[t] times the measured one.
  Assignment solve(const std::vector<double>& factors) const;
  std::vector<double> shrunken(double trust) const;

  const Candidates& candidates_;
  const Sensitivity& sensitivity_;
  uint64_t budget_;
  Measure measure_;
  std::vector<Measured> history_;
  std::map<Assignment, size_t> known_;
};

}  // namespace walsh
