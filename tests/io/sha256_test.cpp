// Tests SHA-256 by examples of FIPS 180-4 and lengths around blocks.
#include "io/sha256.h"

#include <gtest/gtest.h>

namespace walsh {
namespace {

TEST(Sha256Test, DigestsAreThoseOfTheStandard) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, EveryLengthAroundABlockIsPadded) {
  // Python: hashlib.sha256(b"".join(hashlib.sha256(b"x" * n).digest() for n in range(50, 140)))
  std::string all;
  for (size_t n = 50; n < 140; ++n)
    for (const std::byte byte : sha256(std::string(n, 'x')))
      all += static_cast<char>(byte);
  EXPECT_EQ(hex(sha256(all)), "80de82c19ad9c41ef0b4ce0dfd9f6604f2c711371fc683122595a9e2e383e2f8");
}

}  // namespace
}  // namespace walsh
