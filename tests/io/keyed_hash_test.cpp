#include "io/keyed_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace walsh {
namespace {

TEST(KeyedHash, AnotherSecretScattersKeysThatFellTogether) {
  // The first byte of the hash is the place.
  const auto place = [](uint64_t key, uint64_t secret) { return keyed_hash(key, secret) & 0xff; };
  std::set<uint64_t> places;
  size_t together = 0;
  for (uint64_t key = 0; together < 256; ++key) {
    if (place(key, 1) != 0) continue;
    ++together;
    places.insert(place(key, 0xA0761D6478BD642F));
  }
  EXPECT_GT(places.size(), 100u);  // of 256; about 162 at random
}

TEST(KeyedHash, StringsDependOnTheSecretToo) {
  EXPECT_EQ(keyed_hash(std::string_view("weight"), 1), keyed_hash(std::string_view("weight"), 1));
  EXPECT_NE(keyed_hash(std::string_view("weight"), 1), keyed_hash(std::string_view("weight"), 2));
  EXPECT_NE(keyed_hash(std::string_view("a"), 1), keyed_hash(std::string_view("b"), 1));
  EXPECT_EQ(StringHash{}("weight"), keyed_hash(std::string_view("weight"), hash_secret()));
  EXPECT_EQ(IntegerHash{}(7), keyed_hash(7, hash_secret()));
}

TEST(KeyedHash, TheSecretIsDrawnOnce) {
  EXPECT_EQ(hash_secret(), hash_secret());
  EXPECT_NE(hash_secret(), 0u);
}

TEST(KeyedHash, AllBitsOfNeighboursDiffer) {
  std::array<int, 64> changed{};
  constexpr int kPairs = 1000;
  constexpr uint64_t kSecret = 0x2545F4914F6CDD1D;
  for (uint64_t key = 0; key < kPairs; ++key) {
    const uint64_t difference = keyed_hash(key, kSecret) ^ keyed_hash(key + 1, kSecret);
    for (size_t bit = 0; bit < 64; ++bit)
      changed[bit] += static_cast<int>(difference >> bit & 1);
  }
  for (const int count : changed) {
    EXPECT_GT(count, kPairs / 4);
    EXPECT_LT(count, 3 * kPairs / 4);
  }
}

}  // namespace
}  // namespace walsh
