// Finding the assignment of least divergence within a budget: the knapsack's answer to the measured
// sensitivities, then variations of it that are kept only if measuring shows them to be better.
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
  double damage = 0;  // sum of what each tensor does alone
  Estimate kld;
};

// Divergence of an assignment; expensive.
using Measure = std::function<Estimate(const Assignment&)>;

class AllocationSearch {
 public:
  // `budget`: bytes of all free tensors together. The references outlive the search.
  AllocationSearch(const Candidates& candidates, const Sensitivity& sensitivity, uint64_t budget,
                   Measure measure);

  // The assignment of least damage that fits and has one format in all layers, and one in the
  // embedding and the head if they are free. Throws limit if none fits.
  Measured uniform();
  // The best of the uniform one, the knapsack's answer and at most `evaluations` variations of it.
  Measured best(int64_t evaluations);
  // Sum of the damage of single tensors.
  double damage(const Assignment& assignment) const;
  uint64_t bytes(const Assignment& assignment) const;  // of the free tensors

  // Measured ones, in the order in which they were measured.
  const std::vector<Measured>& history() const { return history_; }
  const Measured& measure(const Assignment& assignment);

 private:
  using Group = std::vector<size_t>;  // of tensors
  std::vector<Group> make_groups() const;
  // The knapsack's answer if the damage of tensor t is factors[t] times what it was measured to be.
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
