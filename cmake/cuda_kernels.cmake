# The table of the kernels of matrix products on GPUs: which templates are compiled for which codes.
# Each row is a source that is written while configuring, so that what the rows say is compiled side
# by side. Group sizes and numbers of vectors of a code are in src/kernels/cuda/gemv/gemv_kernel.h
# (has_flush, most_vectors), shapes of tiles in gemm/int8_tile.cuh and experts/expert_tile.cuh.

# Explicit instantiations of one header, as a source of the layer.
function(walsh_kernel sources name header namespace)
  set(text "#include \"kernels/cuda/${header}\"\n\nnamespace ${namespace} {\n\n")
  foreach(instance ${ARGN})
    string(APPEND text "template ${instance};\n")
  endforeach()
  string(APPEND text "\n}  // namespace ${namespace}\n")
  set(file ${PROJECT_BINARY_DIR}/cuda_kernels/${name}.cu)
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  set(${sources} ${${sources}} ${file} PARENT_SCOPE)
endfunction()

# A kernel that runs all layers (kernels/cuda/persistent/phase.h): codes, with experts, with mixers.
macro(walsh_persistent name codes experts mixers)
  walsh_kernel(kernels persistent_${name} persistent/kernel.cuh walsh::cuda
               "PersistentKernel persistent_kernel<${codes}, ${experts}, ${mixers}>()")
endmacro()

# Sets `result` to the sources of all kernels.
function(walsh_cuda_kernels result)
  set(kernels)
  foreach(code Scalar2 Scalar3 Scalar4 Scalar8 Product Trellis4 Trellis5 Trellis6 Trellis7
               Trellis8)
    string(REGEX REPLACE "^(Scalar|Trellis)(.)$" "\\1Decoder<\\2>" decoder ${code})
    string(REPLACE "Product" "ProductDecoder" decoder ${decoder})
    string(TOLOWER ${code} name)
    # One to 16 vectors, of one matrix and of experts.
    walsh_kernel(kernels gemv_${name} gemv/gemv_kernel.cuh walsh::cuda
                 "GemvKernel gemv_kernel<${decoder}>(const GemvKind&)")
    walsh_kernel(kernels expert_gemv_${name} experts/expert_gemv.cuh walsh::cuda
                 "ExpertGemvKernel expert_gemv_kernel<${decoder}>(const GemvKind&)")
  endforeach()

  foreach(bits 2 3 4 8)
    # Many vectors of experts, and of one matrix, the last with scales of 128 columns and of 32.
    walsh_kernel(kernels expert_tile_${bits} experts/expert_tile.cuh walsh::cuda::detail
                 "ExpertTileLauncher expert_tile<ScalarDecoder<${bits}>>(bool)")
    foreach(fine false true)
      if((bits EQUAL 2 AND fine) OR (bits EQUAL 8 AND NOT fine))
        continue()
      endif()
      walsh_kernel(
        kernels int8_tile_${bits}_${fine} gemm/int8_tile.cuh walsh::cuda::detail
        "bool launch_tile<ScalarDecoder<${bits}>, ${fine}>(TileShape, TileLaunch&, Stream)")
    endforeach()
  endforeach()

  foreach(bits 4 5 6 7 8)
    walsh_persistent(trellis${bits} "OneCode<TrellisDecoder<${bits}>, 128>" false false)
  endforeach()
  foreach(code "2, 128" "3, 32" "3, 128" "4, 32" "4, 128" "8, 32")
    string(REPLACE ", " "_" name ${code})
    string(REPLACE "," ">," codes "OneCode<ScalarDecoder<${code}>")
    walsh_persistent(${name} "${codes}" false false)
    walsh_persistent(${name}_experts "${codes}" true false)
  endforeach()
  foreach(bits 2 3 4)
    walsh_persistent(${bits}_mixers "OneCode<ScalarDecoder<${bits}>, 128>" false true)
    walsh_persistent(${bits}_mixers_experts "OneCode<ScalarDecoder<${bits}>, 128>" true true)
  endforeach()
  walsh_persistent(narrow NarrowCodes false false)
  walsh_persistent(narrow_experts NarrowCodes true false)
  walsh_persistent(narrow_mixers NarrowCodes false true)
  walsh_persistent(narrow_mixers_experts NarrowCodes true true)
  walsh_persistent(wide WideCodes false false)
  walsh_persistent(wide_experts WideCodes true false)
  walsh_persistent(trellis TrellisCodes false false)
  set(${result} ${kernels} PARENT_SCOPE)
endfunction()
