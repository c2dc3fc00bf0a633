# Two images of the server, with the Debian package of this checkout in them:
#   docker build --target cpu -t walsh:cpu .
#   docker build --target cuda -t walsh:cuda .
#   docker run --rm -p 127.0.0.1:8080:8080 -v "$PWD/models:/models:ro" -e WALSH_ARG_API_KEY=KEY \
#     walsh:cpu serve /models/MODEL              (walsh:cuda with --gpus all)
# --build-arg COMMIT=$(git rev-parse --short=12 HEAD) is what walsh --version --verbose says.

FROM debian:bookworm-slim AS build-cpu
WORKDIR /source
COPY tools/install_packages.sh tools/
RUN bash -c 'source tools/install_packages.sh && install_packages "${WALSH_BUILD_PACKAGES[@]}" \
      file dpkg-dev'
COPY . .
ARG COMMIT=unknown
RUN cmake --preset release -DWALSH_TESTS=OFF -DWALSH_CUDA=OFF -DWALSH_COMMIT="$COMMIT" \
 && cmake --build --preset release \
 && cpack -G DEB --config build/release/CPackConfig.cmake -B /package

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build-cuda
WORKDIR /source
COPY tools/install_packages.sh tools/
RUN bash -c 'source tools/install_packages.sh && install_packages "${WALSH_BUILD_PACKAGES[@]}" \
      file dpkg-dev'
COPY . .
ARG COMMIT=unknown
ARG ARCHITECTURES="80;86;89;90a;120"
RUN cmake --preset release -DWALSH_TESTS=OFF -DWALSH_CUDA=ON -DWALSH_COMMIT="$COMMIT" \
      -DWALSH_CUDA_ARCHITECTURES="$ARCHITECTURES" \
 && cmake --build --preset release \
 && cpack -G DEB --config build/release/CPackConfig.cmake -B /package

FROM debian:bookworm-slim AS cpu
COPY --from=build-cpu /package/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb \
 && rm -rf /var/lib/apt/lists/* /tmp/*.deb && useradd --system --create-home walsh
COPY tools/container_health.sh /usr/local/bin/walsh-health
USER walsh
WORKDIR /home/walsh
# Inside of a container everything comes from outside of it: a key is asked for (WALSH_ARG_API_KEY).
ENV WALSH_ARG_HOST=0.0.0.0 WALSH_ARG_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=10m CMD ["walsh-health"]
ENTRYPOINT ["walsh"]
CMD ["--help"]

FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS cuda
# Products of long prompts are cuBLASLt's.
RUN apt-get update && apt-get install -y --no-install-recommends libcublas-13-0 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-cuda /package/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb \
 && rm -rf /var/lib/apt/lists/* /tmp/*.deb && useradd --system --create-home walsh
COPY tools/container_health.sh /usr/local/bin/walsh-health
USER walsh
WORKDIR /home/walsh
ENV WALSH_ARG_HOST=0.0.0.0 WALSH_ARG_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=10m CMD ["walsh-health"]
ENTRYPOINT ["walsh"]
CMD ["--help"]
