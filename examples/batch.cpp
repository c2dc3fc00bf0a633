// batch MODEL PROMPT... continues all prompts together and prints a line for each.
#include <walsh/batch.h>
#include <walsh/error.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: batch MODEL PROMPT...\n");
    return 2;
  }
  try {
    walsh::EngineOptions machine;
    machine.context = 512;
    machine.batch.emplace();  // with a batch the engine needs no context of its own
    const walsh::Engine engine = walsh::Engine::open(argv[1], machine);
    walsh::TextBatch batch(engine, *machine.batch);
    walsh::GenerationOptions options;
    options.max_tokens = 16;
    options.temperature = 0;
    options.stop = {"\n"};
    const std::vector<std::string> prompts(argv + 2, argv + argc);
    const auto results = batch.generate(prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i)
      std::printf("%s|%s\n", prompts[i].c_str(), results[i].text.c_str());
  } catch (const walsh::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return walsh::exit_status(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
