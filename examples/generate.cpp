// generate MODEL PROMPT continues a text, and then goes on from it in the same session.
#include <walsh/engine.h>
#include <walsh/error.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace {

bool print(std::string_view piece) {
  return std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size();
}

void talk(const char* model, const std::string& prompt) {
  walsh::EngineOptions machine;
  machine.context = 512;
  const walsh::Engine engine = walsh::Engine::open(model, machine);
  for (const std::string& note : engine.notes())
    std::fprintf(stderr, "note: %s\n", note.c_str());

  walsh::TextSession session(engine);
  walsh::GenerationOptions options;
  options.max_tokens = 24;
  options.temperature = 0;
  options.stop = {"\n\n"};
  const walsh::GenerationResult first = session.generate(prompt, options, print);
  // The session knows the prompt and the generated text, so only the new words are evaluated.
  const walsh::GenerationResult second =
      session.generate(prompt + first.text + " In the evening", options, print);
  std::printf("\n%lld of %lld tokens of the second prompt were known\n",
              static_cast<long long>(second.cached_tokens),
              static_cast<long long>(second.prompt_tokens));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate MODEL PROMPT\n");
    return 2;
  }
  try {
    talk(argv[1], argv[2]);
  } catch (const walsh::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return walsh::exit_status(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
