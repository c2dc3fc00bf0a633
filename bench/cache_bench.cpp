// Measures attention of one token behind 4,096 positions by the query heads of one KV head. fp16
// keys and values and those of every coded type take turns on one thread. It prints the least CPU
// time per KV head.
//
//     bench_cache [HEAD_DIM [QUERY_HEADS]]
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/random.h"
#include "cache/attention.h"

namespace walsh {
namespace {

constexpr int64_t kPositions = 4096, kBlocks = kPositions / kCacheBlock;
constexpr int kKvHeads = 24;  // caches do not hold as many
constexpr int kRounds = 6;

// Returns the CPU time of this thread.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

AlignedArray<float> normal_values(int64_t count, uint64_t seed) {
  AlignedArray<float> x(static_cast<size_t>(count));
  Random random(seed);
  for (float& value : x)
    value = static_cast<float>(random.normal());
  return x;
}

struct Queries {
  int head_dim, heads;
  AttentionOptions options;
  AlignedArray<float> q = normal_values(int64_t{head_dim} * heads, 1);
  AlignedArray<float> out{q.size()}, log_sums{static_cast<size_t>(heads)};

  Queries(int dim, int count) : head_dim(dim), heads(count) {
    options.scale = 1 / std::sqrt(static_cast<float>(dim));
  }
};

class HalfCache {
 public:
  explicit HalfCache(const Queries& queries)
      : size_(kPositions * queries.head_dim),
        keys_(static_cast<size_t>(size_ * kKvHeads)),
        values_(keys_.size()),
        scratch_(static_cast<size_t>(attention_scratch(1, kPositions, queries.head_dim))) {
    const AlignedArray<float> x = normal_values(size_, 2);
    for (int64_t head = 0; head < kKvHeads; ++head) {
      ops().to_f16(x.data(), size_, keys_.data() + head * size_);
      ops().to_f16(x.data(), size_, values_.data() + head * size_);
    }
  }

  void attend(int64_t head, Queries& queries) {
    const KvView view = {keys_.data() + head * size_, values_.data() + head * size_, 0, 1,
                         queries.head_dim};
    ops().attention({view, 0, queries.heads, 1, kPositions - 1, queries.options, queries.q.data(),
                     0, queries.out.data(), 0, queries.log_sums.data(), scratch_.data()});
  }

 private:
  int64_t size_;
  AlignedArray<uint16_t> keys_, values_;
  AlignedArray<float> scratch_;
};

class CodedHeads {
 public:
  const CacheType& type;
  double least = HUGE_VAL;  // it counts seconds

  CodedHeads(const CacheType& cache_type, const Queries& queries)
      : type(cache_type),
        keys_(cache_type, queries.head_dim, kPositions * kKvHeads),
        values_(cache_type, queries.head_dim, kPositions * kKvHeads),
        scratch_(cache_type, cache_type, queries.head_dim, queries.heads, false) {
    for (int64_t bundle = 0; bundle < kCacheBlock / kCacheBundle; ++bundle) {
      const auto seed = static_cast<uint64_t>(3 + bundle);
      keys_.store(ops(), bundle, normal_values(kCacheBundle * keys_.cols(), seed).data());
      values_.store(ops(), bundle, normal_values(kCacheBundle * values_.cols(), seed).data());
    }
    for (int64_t block = 1; block < kBlocks * kKvHeads; ++block) {
      keys_.copy_block(0, block);
      values_.copy_block(0, block);
    }
  }

  void attend(int64_t head, Queries& queries) {
    int32_t blocks[kBlocks];
    for (int64_t i = 0; i < kBlocks; ++i)
      blocks[i] = static_cast<int32_t>(head * kBlocks + i);
    const int64_t begin = 0, end = kPositions;
    attend_stored(
        ops(), {&keys_, &values_, nullptr, nullptr, nullptr, blocks},
        {queries.q.data(), 0, 1, queries.heads, queries.head_dim, queries.options, &begin, &end},
        queries.out.data(), 0, queries.log_sums.data(), scratch_);
  }

 private:
  CacheKeys keys_;
  CacheValues values_;
  CacheScratch scratch_;
};

template <class Cache>
double seconds_per_head(Cache& cache, Queries& queries) {
  const double start = seconds();
  for (int64_t head = 0; head < kKvHeads; ++head)
    cache.attend(head, queries);
  return (seconds() - start) / kKvHeads;
}

void compare(int head_dim, int heads) {
  Queries queries(head_dim, heads);
  HalfCache half(queries);
  std::vector<std::unique_ptr<CodedHeads>> coded;
  for (const CacheType& type : all_cache_types())
    if (type.coded) coded.push_back(std::make_unique<CodedHeads>(type, queries));
  double least = HUGE_VAL;
  for (int round = 0; round < kRounds; ++round) {
    least = std::min(least, seconds_per_head(half, queries));
    for (const auto& of_type : coded) {
      of_type->least = std::min(of_type->least, seconds_per_head(*of_type, queries));
    }
  }
  fmt::print("{}, {} query heads of {} values\n", isa_name(current_isa()), heads, head_dim);
  fmt::print("{:<12} {:8.1f} us\n", "f16", least * 1e6);
  for (const auto& c : coded) {
    fmt::print("{:<12} {:8.1f} us {:6.2f} times as fast\n", c->type.name, c->least * 1e6,
               least / c->least);
  }
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  const int head_dim = argc > 1 ? std::atoi(argv[1]) : 128;
  const int heads = argc > 2 ? std::atoi(argv[2]) : 4;
  if (head_dim < 16 || head_dim % 16 != 0 || head_dim > 512 || heads < 1 || heads > 64) {
    fmt::print(stderr, "usage: bench_cache [HEAD_DIM [QUERY_HEADS]]\n");
    return 2;
  }
  walsh::compare(head_dim, heads);
}
