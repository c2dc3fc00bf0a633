#include "io/checksum.h"

#include "io_testing.h"

namespace walsh {
namespace {

using testing::to_bytes;

// The expectations were printed by the Python package xxhash (xxHash 0.8.4) for the same bytes.
TEST(Checksum, EqualsXxhsum) {
  EXPECT_EQ(checksum({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(checksum(to_bytes("walsh")).hex(), "690ff7580674f696fca96e0c3fa39be3");
  EXPECT_EQ(checksum(to_bytes(std::string(1000, 'x'))).hex(), "50a1af5a5f2dcf01c0a4877b962cba82");
}

TEST(Checksum, StreamEqualsTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += static_cast<char>(i * 7);
  const auto bytes = to_bytes(text);
  const std::span<const std::byte> all(bytes);
  for (const size_t step : {1u, 7u, 64u, 1024u, 5000u}) {
    ChecksumStream stream;
    for (size_t i = 0; i < all.size(); i += step) {
      stream.update(all.subspan(i, std::min(step, all.size() - i)));
    }
    EXPECT_EQ(stream.digest(), checksum(all)) << step;
  }
  EXPECT_EQ(ChecksumStream().digest(), checksum({}));
}

TEST(Checksum, WithoutSomeBytesIsThatOfZerosInTheirPlace) {
  const auto bytes = to_bytes("0123456789 and so on");
  for (const auto& [offset, count] : {std::pair{0, 4}, {3, 16}, {19, 1}, {20, 0}, {0, 20}}) {
    auto zeroed = bytes;
    std::fill_n(zeroed.begin() + offset, count, std::byte{0});
    EXPECT_EQ(checksum_without(bytes, static_cast<size_t>(offset), static_cast<size_t>(count)),
              checksum(zeroed))
        << offset;
  }
}

TEST(Checksum, SeesEverySingleBitFlip) {
  auto bytes = to_bytes(std::string(200, 'a'));
  const Checksum original = checksum(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(checksum(bytes), original) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace walsh
