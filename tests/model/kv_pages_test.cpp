#include "model/kv_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAre;

KvShape small(int64_t rewritten = 0) {
  KvShape shape;
  shape.capacity = 40;
  shape.sequences = 3;
  shape.page_positions = 8;
  shape.pages = 6;
  shape.rewritten = rewritten;
  return shape;
}

// Appends `rows` positions to a sequence; returns the pages that are copied for it.
std::vector<PageCopy> grow(KvPages& pages, int64_t sequence, int64_t rows) {
  const Growth growth{sequence, rows};
  auto copies = pages.reserve({&growth, 1});
  pages.extend(sequence, rows);
  return copies;
}

ErrorCode error_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    return e.code();
  }
  return ErrorCode::internal;
}

TEST(KvPages, ASequenceHasThePagesThatItsTokensNeed) {
  KvPages pages(small());
  const int64_t s = pages.open();
  EXPECT_EQ(s, 0);
  EXPECT_TRUE(grow(pages, s, 8).empty());
  EXPECT_THAT(pages.pages(s), ElementsAre(0));
  grow(pages, s, 1);
  EXPECT_THAT(pages.pages(s), ElementsAre(0, 1));
  pages.truncate(s, 8);
  EXPECT_THAT(pages.pages(s), ElementsAre(0));
  EXPECT_EQ(pages.free_pages(), 5);
  pages.close(s);
  EXPECT_EQ(pages.free_pages(), 6);
  EXPECT_EQ(error_of([&] { pages.length(s); }), ErrorCode::usage);
}

TEST(KvPages, ForksShareWholePagesAndCopyTheOneThatIsWrittenTo) {
  KvPages pages(small());
  const int64_t a = pages.open();
  grow(pages, a, 20);
  const int64_t b = pages.fork(a, 18);
  EXPECT_EQ(pages.length(b), 18);
  EXPECT_EQ(pages.free_pages(), 3);
  const auto copies = grow(pages, b, 1);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, pages.pages(a)[2]);
  EXPECT_EQ(copies[0].to, pages.pages(b)[2]);
  EXPECT_TRUE(grow(pages, a, 1).empty()) << "the page is its own again";
  EXPECT_EQ(pages.pages(a)[1], pages.pages(b)[1]);
  pages.close(a);
  EXPECT_EQ(pages.free_pages(), 3) << "two pages are still those of the fork";
  pages.close(b);
  EXPECT_EQ(pages.free_pages(), 6);
}

TEST(KvPages, AForkAtAPageNeedsNoCopy) {
  KvPages pages(small());
  const int64_t a = pages.open();
  grow(pages, a, 16);
  const int64_t b = pages.fork(a, 8);
  EXPECT_TRUE(grow(pages, b, 3).empty());
  EXPECT_EQ(pages.pages(a)[0], pages.pages(b)[0]);
  EXPECT_NE(pages.pages(a)[1], pages.pages(b)[1]);
}

TEST(KvPages, PositionsThatAreWrittenAgainAreCopiedToo) {
  KvPages pages(small(9));
  const int64_t a = pages.open();
  grow(pages, a, 16);
  const int64_t b = pages.fork(a, 16);
  EXPECT_EQ(grow(pages, b, 1).size(), 2u) << "positions from 7 on";
}

// Two sequences share a page and write to it: one of them keeps it.
TEST(KvPages, ABatchTakesAsManyPagesAsItNeeds) {
  KvPages pages(small());
  const int64_t a = pages.open();
  grow(pages, a, 20);
  const int64_t b = pages.fork(a, 20), c = pages.fork(a, 4);
  const Growth both[] = {{a, 5}, {b, 5}};
  EXPECT_EQ(pages.reserve(both).size(), 1u);  // and a new page for each
  EXPECT_EQ(pages.free_pages(), 0);
  pages.extend(a, 5);
  pages.extend(b, 5);
  EXPECT_EQ(error_of([&] { grow(pages, c, 1); }), ErrorCode::limit);
  EXPECT_EQ(pages.length(c), 4);
  EXPECT_EQ(pages.pages(c)[0], pages.pages(a)[0]) << "nothing has changed";
  pages.close(b);
  EXPECT_EQ(grow(pages, c, 1).size(), 1u);
}

TEST(KvShape, MorePagesThanCanBeAddressedAreRefusedAtOnce) {
  ModelConfig config;
  config.max_positions = int64_t{1} << 31;
  config.layers.resize(1);
  SessionOptions options;
  options.max_positions = config.max_positions;
  options.sequences = 512;
  EXPECT_EQ(error_of([&] { kv_shape(config, {}, 128, options); }), ErrorCode::limit);
  options.cache_positions = 4096;
  EXPECT_EQ(kv_shape(config, {}, 128, options).pages, 32);
  options.max_positions = 256;
  options.sequences = 2;
  options.cache_positions = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(kv_shape(config, {}, 128, options).pages, 4);
}

TEST(KvPages, RefusesWhatASequenceCannotHave) {
  KvPages pages(small());
  const int64_t a = pages.open();
  EXPECT_EQ(error_of([&] { grow(pages, a, 41); }), ErrorCode::usage);
  EXPECT_EQ(error_of([&] { pages.fork(a, 1); }), ErrorCode::usage);
  EXPECT_EQ(error_of([&] { pages.truncate(a, 1); }), ErrorCode::usage);
  pages.open();
  pages.open();
  EXPECT_EQ(error_of([&] { pages.open(); }), ErrorCode::limit);
  EXPECT_EQ(error_of([&] { pages.fork(a, 0); }), ErrorCode::limit);
  EXPECT_EQ(error_of([&] { pages.close(7); }), ErrorCode::usage);
}

}  // namespace
}  // namespace walsh
