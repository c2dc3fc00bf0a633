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
