#include "io/mapped_file.h"

#include <sys/stat.h>

#include "io/system_error.h"
#include "io_testing.h"

namespace walsh {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

TEST(MappedFile, ShowsTheContent) {
  TemporaryFolder folder;
  const MappedFile file(folder.write("a", "hello"));
  EXPECT_EQ(as_text(file.bytes()), "hello");
  EXPECT_EQ(file.path(), folder.file("a"));
}

TEST(MappedFile, AcceptsAnEmptyFile) {
  TemporaryFolder folder;
  const MappedFile file(folder.write("empty", ""));
  EXPECT_TRUE(file.bytes().empty());
  file.drop(0, 100);
}

TEST(MappedFile, EveryErrorHasAPlaceAndMemoryThatIsShortIsALimit) {
  expect_error([] { MappedFile file(""); }, ErrorCode::io, {"'': cannot open"});
  expect_error([] { throw_system_error("a", "map", ENOMEM); }, ErrorCode::limit, {"a: cannot map"});
}

TEST(MappedFile, KeepsItsAddressWhenMoved) {
  TemporaryFolder folder;
  MappedFile first(folder.write("a", "first"));
  const auto* address = first.bytes().data();
  MappedFile moved(std::move(first));
  EXPECT_EQ(moved.bytes().data(), address);
  MappedFile other(folder.write("b", "other"));
  other = std::move(moved);
  EXPECT_EQ(other.bytes().data(), address);
  EXPECT_EQ(as_text(other.bytes()), "first");
}

TEST(MappedFile, ContentSurvivesDrop) {
  TemporaryFolder folder;
  std::string content(100'000, ' ');
  for (size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<char>(i * 31);
  const MappedFile file(folder.write("a", content));
  for (const auto& [offset, size] : std::vector<std::pair<uint64_t, uint64_t>>{{0, content.size()},
                                                                               {1, 4095},
                                                                               {5000, 20000},
                                                                               {99'999, ~0ull},
                                                                               {~0ull, ~0ull},
                                                                               {0, 0}}) {
    file.drop(offset, size);
    EXPECT_EQ(as_text(file.bytes()), content);
  }
}

TEST(MappedFile, RefusesWhatIsNotARegularFile) {
  TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_error([&] { MappedFile file(folder.path()); }, ErrorCode::bad_input, {"is a folder"});
  expect_error([&] { MappedFile file(fifo); }, ErrorCode::bad_input, {"not a regular file"});
  expect_error([&] { MappedFile file("/dev/null"); }, ErrorCode::bad_input,
               {"/dev/null", "not a regular file"});
  expect_error([&] { MappedFile file(folder.file("absent")); }, ErrorCode::io,
               {"absent", "No such file"});
  expect_error([&] { read_text_file(fifo, 10); }, ErrorCode::bad_input, {"not a regular file"});
  expect_error([&] { read_text_file(folder.path(), 10); }, ErrorCode::bad_input, {"is a folder"});
}

TEST(ReadTextFile, ReadsUpToTheLimit) {
  TemporaryFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  EXPECT_EQ(read_text_file(folder.write("b", ""), 0), "");
  expect_error([&] { read_text_file(path, 4); }, ErrorCode::limit, {path, "more than 4 bytes"});
  expect_error([&] { read_text_file(folder.file("x"), 4); }, ErrorCode::io, {"No such file"});
}

TEST(ReadTextFile, ReadsFilesWhoseSizeIsNotKnown) {
  EXPECT_NE(read_text_file("/proc/self/status", 1 << 20).find("Name:"), std::string::npos);
  expect_error([] { read_text_file("/proc/self/status", 10); }, ErrorCode::limit, {"10 bytes"});
}

}  // namespace
}  // namespace walsh
