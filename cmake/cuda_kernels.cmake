# Lists the kernels of GPUs that are templates: for which codes products are compiled, for which
# sizes of heads attention, and for which groups of scales the encoder. Each row is a source that is
# written while configuring, so that what the rows say is compiled side by side. Group sizes and
# numbers of vectors of a code are in src/kernels/cuda/gemv/gemv_kernel.h (has_flush, most_vectors),
# shapes of tiles in gemm/int8_tile.cuh and experts/expert_tile.cuh.

# Instantiates templates of one header in a source of the layer. Where GPU code only has to compile
# (WALSH_CUDA_QUICK), twelve of a header are one source, whatever their names are.
function(walsh_kernel sources name header namespace)
  foreach(instance ${ARGN})
    if(WALSH_CUDA_QUICK)
      string(REGEX REPLACE "[/.]" "_" name ${header})
      get_property(instances GLOBAL PROPERTY WALSH_INSTANCES_${name})
      list(LENGTH instances number)
      set_property(GLOBAL APPEND PROPERTY WALSH_INSTANCES_${name} ${number})
      math(EXPR number "${number} / 12")
      string(APPEND name "_${number}")
    endif()
    get_property(text GLOBAL PROPERTY WALSH_KERNEL_${name})
    if(NOT text)
      set(text "#include \"${header}\"\n\nnamespace ${namespace} {\n\n")
      list(APPEND ${sources} ${name})
    endif()
    set_property(GLOBAL PROPERTY WALSH_KERNEL_${name} "${text}template ${instance};\n")
  endforeach()
  set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()

# These kernels run all layers (kernels/cuda/persistent/phase.h), with experts and with other mixers
# or not, one for each of the codes.
macro(walsh_persistent name experts mixers)
  set(instances)
  foreach(codes ${ARGN})
    list(APPEND instances
         "PersistentKernel persistent_kernel<${codes}, ${experts}, ${mixers}>()")
  endforeach()
  walsh_kernel(kernels persistent_${name} kernels/cuda/persistent/kernel.cuh walsh::cuda
               ${instances})
endmacro()

# These do the same for a coded cache of keys and values, of heads of 64 and of 128.
macro(walsh_coded_persistent name experts codes)
  foreach(dim 64 128)
    walsh_kernel(kernels coded_persistent_${name}_${dim} kernels/cuda/persistent/kernel.cuh
                 walsh::cuda
                 "PersistentKernel coded_persistent_kernel<${codes}, ${experts}, ${dim}>()")
  endforeach()
endmacro()

# These encode scalar codes (codec/scalar/cuda/encode_args.h).
macro(walsh_codec_kernels)
  foreach(kind plain offset sub_groups row absmax)
    walsh_kernel(
      kernels encode_${kind} codec/scalar/cuda/device_team.cuh walsh::cuda::encoding
      "void launch_kind<GroupKind::${kind}>(int, const PassArgs&, int64_t, Stream)")
  endforeach()
endmacro()

# These compute attention to a coded cache, by the size of heads.
macro(walsh_cache_kernels)
  foreach(dim 64 128 256)
    walsh_kernel(kernels attend_decode_${dim} cache/cuda/attend_decode.cuh walsh::cuda::detail
                 "void launch_rows<${dim}>(const CodedDecodeArgs&, int, Stream)")
    walsh_kernel(kernels attend_prefill_${dim} cache/cuda/attend_prefill.cuh walsh::cuda::detail
                 "void launch_coded_prefill<${dim}>(const CodedPrefillArgs&, Stream)")
  endforeach()
endmacro()

# These compute products, all layers in one launch, and attention to the pages of prompts.
macro(walsh_kernels_kernels)
  # Scalar codes have these widths, of which some may have scales that hold for 32 columns, or for
  # 128 columns (codec/cuda/matrix_code.h).
  set(widths 2 3 4 8)
  set(widths_32 3 4 8)
  set(widths_128 2 3 4)
  set(codes product trellis trellis_half)
  foreach(bits ${widths})
    list(APPEND codes scalar${bits})
    set(decoders_scalar${bits} ScalarDecoder<${bits}>)
  endforeach()
  set(decoders_product ProductDecoder)
  set(decoders_trellis TrellisDecoder<4> TrellisDecoder<6> TrellisDecoder<8>)
  set(decoders_trellis_half TrellisDecoder<5> TrellisDecoder<7>)
  # These multiply one to 16 vectors, by one matrix and by experts.
  foreach(code ${codes})
    set(gemv)
    set(experts)
    foreach(decoder ${decoders_${code}})
      list(APPEND gemv "GemvKernel gemv_kernel<${decoder}>(const GemvKind&)")
      list(APPEND experts "ExpertGemvKernel expert_gemv_kernel<${decoder}>(const GemvKind&)")
    endforeach()
    walsh_kernel(kernels gemv_${code} kernels/cuda/gemv/gemv_kernel.cuh walsh::cuda ${gemv})
    walsh_kernel(kernels expert_gemv_${code} kernels/cuda/experts/expert_gemv.cuh walsh::cuda
                 ${experts})
  endforeach()

  # These multiply many vectors by one matrix.
  list(TRANSFORM widths_128 PREPEND scalar OUTPUT_VARIABLE coarse)
  foreach(code ${coarse} trellis trellis_half)
    foreach(decoder ${decoders_${code}})
      string(REGEX REPLACE "[^A-Za-z0-9]" "" name ${decoder})
      walsh_kernel(kernels batch_tile_${name} kernels/cuda/gemm/batch_tile.cuh walsh::cuda::detail
                   "bool launch_batch<${decoder}>(BatchShape, BatchLaunch*, Stream)")
    endforeach()
  endforeach()

  # These multiply many vectors by experts, and by one matrix in int8, the last with scales of 128
  # columns and of 32.
  foreach(bits ${widths})
    walsh_kernel(kernels expert_tile_${bits} kernels/cuda/experts/expert_tile.cuh
                 walsh::cuda::detail "ExpertTileLauncher expert_tile<ScalarDecoder<${bits}>>(bool)")
    set(one)
    foreach(columns 32 128)
      if(NOT bits IN_LIST widths_${columns})
        continue()
      endif()
      list(APPEND one "OneCode<ScalarDecoder<${bits}>, ${columns}>")
      set(fine false)
      if(columns EQUAL 32)
        set(fine true)
      endif()
      walsh_kernel(
        kernels int8_tile_${bits}_${columns} kernels/cuda/gemm/int8_tile.cuh walsh::cuda::detail
        "bool launch_tile<ScalarDecoder<${bits}>, ${fine}>(TileShape, TileLaunch&, Stream)")
    endforeach()
    walsh_persistent(${bits} false false ${one})
    walsh_persistent(${bits}_experts true false ${one})
    foreach(codes ${one})
      string(REGEX REPLACE "[^0-9]+" "_" code ${codes})
      walsh_coded_persistent(one${code} false "${codes}")
    endforeach()
  endforeach()
  foreach(bits ${widths_128})
    walsh_coded_persistent(${bits}_experts true "OneCode<ScalarDecoder<${bits}>, 128>")
    foreach(rows "2, true" "2, false" "4, true" "4, false")
      string(REGEX REPLACE ", " "_" name ${rows})
      walsh_kernel(
        kernels rows_persistent_${bits}_${name} kernels/cuda/persistent/kernel.cuh walsh::cuda
        "PersistentKernel rows_persistent_kernel<OneCode<ScalarDecoder<${bits}>, 128>, ${rows}>()")
    endforeach()
    walsh_persistent(${bits}_mixers false true "OneCode<ScalarDecoder<${bits}>, 128>")
    walsh_persistent(${bits}_mixers_experts true true "OneCode<ScalarDecoder<${bits}>, 128>")
  endforeach()
  walsh_persistent(trellis4_5_6 false false "OneCode<TrellisDecoder<4>, 128>"
                   "OneCode<TrellisDecoder<5>, 128>" "OneCode<TrellisDecoder<6>, 128>")
  walsh_persistent(trellis7_8 false false "OneCode<TrellisDecoder<7>, 128>"
                   "OneCode<TrellisDecoder<8>, 128>")
  walsh_persistent(narrow false false NarrowCodes)
  walsh_persistent(narrow_experts true false NarrowCodes)
  walsh_persistent(narrow_mixers false true NarrowCodes)
  walsh_persistent(narrow_mixers_experts true true NarrowCodes)
  walsh_persistent(wide false false WideCodes)
  walsh_persistent(wide_experts true false WideCodes)
  walsh_persistent(trellis_several false false TrellisCodes)
  walsh_coded_persistent(narrow false NarrowCodes)
  walsh_coded_persistent(narrow_experts true NarrowCodes)
  # These compute attention of prompts, by the size of heads; 192 is for keys of latent attention
  # (attention/prefill.cuh).
  foreach(dim 64 96 128 192 256 512)
    walsh_kernel(kernels prefill_${dim} kernels/cuda/attention/prefill.cuh walsh::cuda::detail
                 "void launch_page_prefill<${dim}>(const PagePrefillArgs&, Stream)")
  endforeach()
endmacro()

# Sets `result` to the sources of the kernels of a layer.
function(walsh_cuda_kernels result layer)
  set(kernels)
  if(COMMAND walsh_${layer}_kernels)
    cmake_language(CALL walsh_${layer}_kernels)
  endif()
  set(files)
  foreach(name ${kernels})
    get_property(text GLOBAL PROPERTY WALSH_KERNEL_${name})
    set(file ${PROJECT_BINARY_DIR}/cuda_kernels/${name}.cu)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}\n}\n" @ONLY)
    list(APPEND files ${file})
  endforeach()
  set(${result} ${files} PARENT_SCOPE)
endfunction()
