#include <walsh/engine.h>
#include <walsh/error.h>
#include <walsh/quantizer.h>
#include <walsh/version.h>

#include <cstdio>

int main() {
  for (const auto& format : walsh::formats()) {
    std::printf("%s %.3f\n", format.name.c_str(), format.bits_per_weight);
  }
  try {
    walsh::Engine::open("absent");
  } catch (const walsh::Error& e) {
    return walsh::exit_status(e.code()) == 0;
  }
  return 1;
}
