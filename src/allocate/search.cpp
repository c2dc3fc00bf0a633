#include "allocate/search.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "allocate/knapsack.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kWhere = "allocation";

// The damage of a group is varied by this factor.
constexpr double kStep = 1.6;

// Returns the name with numbers replaced, which is equal for tensors of the same role in all
// layers.
std::string role(const std::string& name) {
  std::string result;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) result += c;
    if (digit && (result.empty() || result.back() != '#')) result += '#';
  }
  return result;
}

}  // namespace

AllocationSearch::AllocationSearch(const Candidates& candidates, const Sensitivity& sensitivity,
                                   uint64_t budget, Measure measure)
    : candidates_(candidates),
      sensitivity_(sensitivity),
      budget_(budget),
      measure_(std::move(measure)) {}

double AllocationSearch::damage(const Assignment& assignment) const {
  double sum = 0;
  for (size_t t = 0; t < assignment.size(); ++t)
    sum += sensitivity_.damage[t][static_cast<size_t>(assignment[t])];
  return sum;
}

uint64_t AllocationSearch::bytes(const Assignment& assignment) const {
  uint64_t sum = 0;
  for (size_t t = 0; t < assignment.size(); ++t)
    sum += candidates_.bytes(t, assignment[t]);
  return sum;
}

const Measured& AllocationSearch::measure(const Assignment& assignment) {
  const auto it = known_.find(assignment);
  if (it != known_.end()) return history_[it->second];
  Measured measured{assignment, damage(assignment), measure_(assignment)};
  known_[assignment] = history_.size();
  return history_.emplace_back(std::move(measured));
}

Measured AllocationSearch::uniform() {
  const int formats = static_cast<int>(candidates_.formats().size());
  const auto& tensors = candidates_.tensors();
  const bool all_linear = std::all_of(tensors.begin(), tensors.end(),
                                      [](const CandidateTensor& tensor) { return tensor.linear; });
  const int others = all_linear ? 1 : formats + 1;
  Assignment best;
  for (int layers = 0; layers < formats; ++layers) {
    for (int other = 0; other < others; ++other) {
      Assignment assignment;
      for (const CandidateTensor& tensor : tensors)
        assignment.push_back(tensor.linear ? layers : other);
      if (bytes(assignment) > budget_) continue;
      if (best.empty() || damage(assignment) < damage(best)) best = std::move(assignment);
    }
  }
  if (best.empty()) {
    throw Error(ErrorCode::limit, kWhere,
                std::to_string(budget_) + " bytes are too few for the narrowest of the candidates");
  }
  return measure(best);
}

Assignment AllocationSearch::solve(const std::vector<double>& factors) const {
  std::vector<std::vector<Choice>> items;
  for (size_t t = 0; t < factors.size(); ++t) {
    std::vector<Choice>& choices = items.emplace_back();
    for (int c = 0; c < candidates_.count(t); ++c) {
      choices.push_back(
          {candidates_.bytes(t, c), factors[t] * sensitivity_.damage[t][static_cast<size_t>(c)]});
    }
  }
  return solve_knapsack(items, budget_, kWhere).picks;
}

// Returns factors that pull the damage per weight of each matrix towards the mean. Trust 1 leaves
// it as measured, and trust 0 makes all equal.
std::vector<double> AllocationSearch::shrunken(double trust) const {
  const auto& tensors = candidates_.tensors();
  double logs = 0, count = 0;
  const auto density = [&](size_t t) {
    return std::log(sensitivity_.curves[t].alpha() / static_cast<double>(tensors[t].weights()));
  };
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t].linear) continue;
    logs += density(t);
    ++count;
  }
  std::vector<double> factors(tensors.size(), 1);
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].linear) factors[t] = std::exp((1 - trust) * (logs / count - density(t)));
  return factors;
}

// Groups the matrices of one role, and the matrices of each third of the layers.
std::vector<AllocationSearch::Group> AllocationSearch::make_groups() const {
  std::map<std::string, Group> roles;
  std::vector<size_t> linear;
  for (size_t t = 0; t < candidates_.tensors().size(); ++t) {
    roles[role(candidates_.tensors()[t].name)].push_back(t);
    if (candidates_.tensors()[t].linear) linear.push_back(t);
  }
  std::vector<Group> groups;
  for (auto& [name, group] : roles)
    groups.push_back(std::move(group));
  constexpr size_t kThirds = 3;
  for (size_t part = 0; part < kThirds; ++part) {
    Group& group = groups.emplace_back();
    for (size_t i = linear.size() * part / kThirds; i < linear.size() * (part + 1) / kThirds; ++i)
      group.push_back(linear[i]);
  }
  return groups;
}

Measured AllocationSearch::best(int64_t evaluations) {
  Measured best = uniform();
  std::vector<double> factors(candidates_.tensors().size(), 1);
  const auto try_factors = [&](const std::vector<double>& tried) {
    const Measured measured = measure(solve(tried));
    if (measured.kld.value >= best.kld.value) return false;
    best = measured;
    factors = tried;
    return true;
  };
  try_factors(factors);
  const size_t most = history_.size() + static_cast<size_t>(std::max<int64_t>(evaluations, 0));
  if (history_.size() < most) try_factors(shrunken(0.5));
  std::vector<Group> groups = make_groups();
  for (bool improved = true; improved && history_.size() < most;) {
    improved = false;
    for (const Group& group : groups) {
      for (const double step : {kStep, 1 / kStep}) {
        if (history_.size() >= most) break;
        std::vector<double> tried = factors;
        for (const size_t t : group)
          tried[t] *= step;
        if (!try_factors(tried)) continue;
        improved = true;
        break;
      }
    }
  }
  return best;
}

}  // namespace walsh
