#include "rotate/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/random.h"

namespace walsh::detail {
namespace {

double dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}

// Computes x <- x - 2 v (v.x) for a unit vector v.
void reflect(const double* v, double* x, int n) {
  const double factor = 2 * dot(v, x, n);
  for (int i = 0; i < n; ++i)
    x[i] -= factor * v[i];
}

// Turns x into the unit vector of the reflection that maps x to a multiple of e0. Returns that
// multiple, which is the diagonal entry of R. A zero x gets the zero vector (no reflection).
double make_householder(double* x, int n) {
  const double norm = std::sqrt(dot(x, x, n));
  if (norm == 0) return 0;
  const double diagonal = x[0] > 0 ? -norm : norm;
  x[0] -= diagonal;
  const double length = std::sqrt(dot(x, x, n));
  for (int i = 0; i < n; ++i)
    x[i] /= length;
  return diagonal;
}

OrthogonalMatrix make_orthogonal(uint32_t seed, int size) {
  const size_t n = static_cast<size_t>(size);
  Random random((uint64_t{seed} << 32) | static_cast<uint32_t>(size));
  std::vector<double> a(n * n);  // Column j begins at a[j * n].
  for (double& v : a)
    v = random.normal();
  std::vector<double> sign(n);
  for (size_t j = 0; j < n; ++j) {
    const int rest = static_cast<int>(n - j);
    double* v = &a[j * n + j];
    sign[j] = make_householder(v, rest) < 0 ? -1.0 : 1.0;
    for (size_t k = j + 1; k < n; ++k)
      reflect(v, &a[k * n + j], rest);
  }
  // Q = H_0 H_1 ... H_{n-1} diag(sign) is built column by column from the unit vectors.
  OrthogonalMatrix q{size, std::vector<float>(n * n), std::vector<float>(n * n)};
  std::vector<double> column(n);
  for (size_t j = 0; j < n; ++j) {
    std::fill(column.begin(), column.end(), 0.0);
    column[j] = sign[j];
    for (size_t k = j + 1; k-- > 0;)
      reflect(&a[k * n + k], &column[k], static_cast<int>(n - k));
    for (size_t i = 0; i < n; ++i) {
      q.forward[j * n + i] = static_cast<float>(column[i]);
      q.inverse[i * n + j] = static_cast<float>(column[i]);
    }
  }
  return q;
}

}  // namespace

std::shared_ptr<const OrthogonalMatrix> orthogonal_matrix(uint32_t seed, int size) {
  struct Entry {
    uint32_t seed;
    std::shared_ptr<const OrthogonalMatrix> matrix;
  };
  constexpr size_t kKept = 16;
  static std::mutex mutex;
  static std::vector<Entry> cache;  // The last entry was used most recently.

  const std::lock_guard lock(mutex);
  const auto found = std::find_if(cache.begin(), cache.end(), [&](const Entry& e) {
    return e.seed == seed && e.matrix->size == size;
  });
  if (found != cache.end()) {
    std::rotate(found, found + 1, cache.end());
    return cache.back().matrix;
  }
  if (cache.size() == kKept) cache.erase(cache.begin());
  cache.push_back({seed, std::make_shared<OrthogonalMatrix>(make_orthogonal(seed, size))});
  return cache.back().matrix;
}

void multiply_in_place(const std::vector<float>& matrix, int size, float* x, float* scratch) {
  std::fill(scratch, scratch + size, 0.0f);
  for (int j = 0; j < size; ++j) {
    const float* column = matrix.data() + static_cast<size_t>(j) * static_cast<size_t>(size);
    const float factor = x[j];
    for (int i = 0; i < size; ++i)
      scratch[i] += factor * column[i];
  }
  std::copy(scratch, scratch + size, x);
}

}  // namespace walsh::detail
