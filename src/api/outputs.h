// What is about to be written, looked at before long work instead of after it.
#pragma once

#include <string>
#include <vector>

namespace walsh {

// Throws usage if one of the files `outputs` (empty names are none) is one of those that the
// checkpoint `folder` consists of or of `inputs`, by device and inode, or two outputs are the same
// file or one is `new_folder`, which is written as well (empty: none is); what AtomicFile throws if
// one cannot be created. Leaves nothing behind. A folder that cannot be opened as a checkpoint
// throws as Checkpoint::open; one that is no folder is left to others.
void check_outputs(const std::vector<std::string>& outputs, const std::string& folder,
                   std::vector<std::string> inputs, const std::string& new_folder = "");

}  // namespace walsh
