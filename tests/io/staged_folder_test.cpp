#include "io/staged_folder.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/atomic_file.h"
#include "io_testing.h"

namespace walsh {
namespace {

using testing::read_all;
using testing::TemporaryFolder;

using Names = std::vector<std::string>;

TEST(StagedFolder, AppearsWholeOrNotAtAll) {
  TemporaryFolder folder;
  {
    StagedFolder dropped(folder.file("out"));
    write_file(dropped.file("part"), "text");
  }
  EXPECT_EQ(folder.names(), Names{});
  StagedFolder kept(folder.file("out"));
  write_file(kept.file("part"), "text");
  EXPECT_FALSE(std::filesystem::exists(folder.file("out")));
  kept.commit();
  EXPECT_EQ(read_all(folder.file("out/part")), "text");
  EXPECT_EQ(folder.names(), Names{"out"});
}

TEST(StagedFolder, RemovesWhatAKilledProcessLeftAndNothingOfARunningOne) {
  TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    StagedFolder killed(folder.file("out"));
    write_file(killed.file("part"), "half");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(folder.names().size(), 1u);

  StagedFolder running(folder.file("out"));
  EXPECT_EQ(folder.names().size(), 1u);
  check_new_folder(folder.file("out"));
  write_file(running.file("part"), "text");
  running.commit();
  EXPECT_EQ(read_all(folder.file("out/part")), "text");
}

}  // namespace
}  // namespace walsh
