#include "io/fault.h"

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "io_testing.h"

namespace walsh {
namespace {

using testing::TemporaryFolder;

using Names = std::vector<std::string>;

TEST(Fault, KnowsTheFileOfAnAddress) {
  TemporaryFolder folder;
  const void* address = nullptr;
  {
    MappedFile first(folder.write("a", "first"));
    const MappedFile second(folder.write("b\n", "second"));
    address = first.bytes().data();
    EXPECT_EQ(mapped_path(address), folder.file("a"));
    EXPECT_EQ(mapped_path(first.bytes().data() + 4), folder.file("a"));
    EXPECT_EQ(mapped_path(first.bytes().data() + 5), nullptr) << "behind the end";
    EXPECT_EQ(mapped_path(second.bytes().data()), folder.file("b")) << "fit for one line";
    const MappedFile moved = std::move(first);
    EXPECT_EQ(mapped_path(address), folder.file("a"));
  }
  EXPECT_EQ(mapped_path(address), nullptr);
  EXPECT_EQ(mapped_path(&folder), nullptr);
  EXPECT_EQ(mapped_path(nullptr), nullptr);
}

TEST(Fault, PutsZerosInPlaceOfWhatIsLost) {
  TemporaryFolder folder;
  const std::string text(3 * 65536, 'x');
  const MappedFile file(folder.write("a", text));
  const MappedFile other(folder.write("b", text));
  EXPECT_FALSE(replace_lost_pages(&folder));
  EXPECT_FALSE(lost_file(""));
  EXPECT_TRUE(replace_lost_pages(file.bytes().data() + 65536 + 5));
  EXPECT_EQ(lost_file(""), folder.file("a"));
  EXPECT_EQ(lost_file(folder.file("a")), folder.file("a"));
  EXPECT_EQ(lost_file(folder.file("b")), std::nullopt);
  EXPECT_EQ(file.bytes()[65535], std::byte{'x'});
  EXPECT_EQ(file.bytes()[65536], std::byte{0});
  EXPECT_EQ(file.bytes()[3 * 65536 - 1], std::byte{0});
  EXPECT_EQ(other.bytes()[65536], std::byte{'x'});
}

TEST(Fault, RemovesTheFilesThatAreNotFinished) {
  TemporaryFolder folder;
  const AtomicFile first(folder.file("a")), second(folder.file("b"));
  AtomicFile third(folder.file("c"));
  third.commit();
  EXPECT_EQ(folder.names().size(), 3u);
  remove_temporary_files();
  EXPECT_EQ(folder.names(), Names{"c"});
}

}  // namespace
}  // namespace walsh
