// Prints the numbers of the CUDA driver interface, one per line. tests/contract/cuda_abi.sh builds
// it twice, with our header and with -DREAL against an installed <cuda.h>, and compares what the
// two programs print. The list of enumerators, abi_names.inc, is made from our header by that
// script; the structures are listed here.

#ifdef REAL
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#else
#include "protocol/cuda_abi.h"
#endif

#include <stddef.h>
#include <stdio.h>

#define N(name) printf(#name " %lld\n", (long long)(name))
#define T(type) printf("sizeof(" #type ") %zu align %zu\n", sizeof(type), _Alignof(type))
#define F(type, field)                                                                                       \
	printf(#type "." #field " at %zu size %zu\n", offsetof(type, field), sizeof(((type *)0)->field))

static void types(void)
{
	T(CUresult);
	T(CUdeviceptr);
	T(CUdevice);
	T(CUcontext);
	T(CUgreenCtx);
	T(CUdevResourceDesc);
	T(CUdevSmResource);
	T(CUdevResource);
	T(CUmodule);
	T(CUfunction);
	T(CUlibrary);
	T(CUkernel);
	T(CUstream);
	T(CUevent);
	T(CUarray);
	T(CUmipmappedArray);
	T(CUgraph);
	T(CUgraphNode);
	T(CUgraphExec);
	T(CUgraphDeviceNode);
	T(CUuserObject);
	T(CUgraphConditionalHandle);
	T(CUgraphEdgeData);
	T(CUDA_KERNEL_NODE_PARAMS_v1);
	T(CUDA_KERNEL_NODE_PARAMS);
	T(CUDA_MEMSET_NODE_PARAMS);
	T(CUDA_MEMSET_NODE_PARAMS_v2);
	T(CUDA_MEMCPY_NODE_PARAMS);
	T(CUDA_HOST_NODE_PARAMS);
	T(CUDA_CHILD_GRAPH_NODE_PARAMS);
	T(CUDA_MEM_ALLOC_NODE_PARAMS);
	T(CUDA_BATCH_MEM_OP_NODE_PARAMS);
	T(CUgraphNodeParams);
	T(CUDA_GRAPH_INSTANTIATE_PARAMS);
	T(CUgraphExecUpdateResultInfo);
	T(CUmemoryPool);
	T(CUlinkState);
	T(CUtexObject);
	T(CUsurfObject);
	T(CUmemGenericAllocationHandle);
	T(CUuuid);
	T(CUhostFn);
	T(CUstreamCallback);
	T(CUoccupancyB2DSize);
	T(CUdevprop);
	T(CUexecAffinitySmCount);
	T(CUexecAffinityParam);
	T(CUctxCigParam);
	T(CUctxCreateParams);
	T(CUDA_MEMCPY2D);
	T(CUDA_MEMCPY3D);
	T(CUDA_ARRAY_DESCRIPTOR);
	T(CUDA_ARRAY3D_DESCRIPTOR);
	T(CUDA_ARRAY_MEMORY_REQUIREMENTS);
	T(CUDA_ARRAY_SPARSE_PROPERTIES);
	T(CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
	T(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC);
	T(CUDA_RESOURCE_DESC);
	T(CUDA_TEXTURE_DESC);
	T(CUDA_RESOURCE_VIEW_DESC);
	T(CUmemLocation);
	T(CUmemAllocationProp);
	T(CUmemAccessDesc);
	T(CUgraphEdgeData);
	T(CUstreamBatchMemOpParams);
	T(CUaccessPolicyWindow);
	T(CUlaunchMemSyncDomainMap);
	T(CUlaunchAttributeValue);
	T(CUlaunchAttribute);
	T(CUlaunchConfig);
	T(CUoutput_mode);
	T(CUprocessState);
	T(CUcheckpointLockArgs);
	T(CUcheckpointCheckpointArgs);
	T(CUcheckpointGpuPair);
	T(CUcheckpointRestoreArgs);
	T(CUcheckpointUnlockArgs);
}

static void small_structures(void)
{
	F(CUcheckpointLockArgs, timeoutMs);
	F(CUcheckpointLockArgs, reserved0);
	F(CUcheckpointLockArgs, reserved1);
	F(CUcheckpointGpuPair, oldUuid);
	F(CUcheckpointGpuPair, newUuid);
	F(CUcheckpointRestoreArgs, gpuPairs);
	F(CUcheckpointRestoreArgs, gpuPairsCount);
	F(CUcheckpointRestoreArgs, reserved);
	F(CUcheckpointRestoreArgs, reserved1);
	F(CUuuid, bytes);
	F(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
	F(CUDA_KERNEL_NODE_PARAMS, kernelParams);
	F(CUDA_KERNEL_NODE_PARAMS, extra);
	F(CUDA_KERNEL_NODE_PARAMS, kern);
	F(CUDA_KERNEL_NODE_PARAMS, ctx);
	F(CUDA_MEMSET_NODE_PARAMS, pitch);
	F(CUDA_MEMSET_NODE_PARAMS, elementSize);
	F(CUDA_MEMSET_NODE_PARAMS, width);
	F(CUDA_MEMSET_NODE_PARAMS, height);
	F(CUDA_MEMSET_NODE_PARAMS_v2, ctx);
	F(CUDA_MEMCPY_NODE_PARAMS, copyCtx);
	F(CUDA_MEMCPY_NODE_PARAMS, copyParams);
	F(CUDA_HOST_NODE_PARAMS, userData);
	F(CUDA_CHILD_GRAPH_NODE_PARAMS, ownership);
	F(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs);
	F(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
	F(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
	F(CUDA_BATCH_MEM_OP_NODE_PARAMS, count);
	F(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray);
	F(CUDA_BATCH_MEM_OP_NODE_PARAMS, flags);
	F(CUgraphNodeParams, kernel);
	F(CUgraphNodeParams, alloc);
	F(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream);
	F(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out);
	F(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out);
	F(CUgraphExecUpdateResultInfo, errorNode);
	F(CUgraphExecUpdateResultInfo, errorFromNode);
	F(CUgraphEdgeData, from_port);
	F(CUgraphEdgeData, type);
	F(CUdevprop, maxThreadsPerBlock);
	F(CUdevprop, maxThreadsDim);
	F(CUdevprop, maxGridSize);
	F(CUdevprop, sharedMemPerBlock);
	F(CUdevprop, totalConstantMemory);
	F(CUdevprop, SIMDWidth);
	F(CUdevprop, memPitch);
	F(CUdevprop, regsPerBlock);
	F(CUdevprop, clockRate);
	F(CUdevprop, textureAlign);
	F(CUdevSmResource, smCount);
	F(CUdevSmResource, minSmPartitionSize);
	F(CUdevSmResource, smCoscheduledAlignment);
	F(CUdevResource, type);
	F(CUdevResource, _internal_padding);
	F(CUdevResource, sm);
	F(CUexecAffinitySmCount, val);
	F(CUexecAffinityParam, type);
	F(CUexecAffinityParam, param.smCount);
	F(CUctxCigParam, sharedDataType);
	F(CUctxCigParam, sharedData);
	F(CUctxCreateParams, execAffinityParams);
	F(CUctxCreateParams, numExecAffinityParams);
	F(CUctxCreateParams, cigParams);
	F(CUmemLocation, type);
	F(CUmemLocation, id);
	F(CUmemAllocationProp, type);
	F(CUmemAllocationProp, requestedHandleTypes);
	F(CUmemAllocationProp, location);
	F(CUmemAllocationProp, win32HandleMetaData);
	F(CUmemAllocationProp, allocFlags.compressionType);
	F(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
	F(CUmemAllocationProp, allocFlags.usage);
	F(CUmemAllocationProp, allocFlags.reserved);
	F(CUmemAccessDesc, location);
	F(CUmemAccessDesc, flags);
	F(CUgraphEdgeData, from_port);
	F(CUgraphEdgeData, to_port);
	F(CUgraphEdgeData, type);
	F(CUgraphEdgeData, reserved);
}

static void copies(void)
{
	F(CUDA_MEMCPY2D, srcXInBytes);
	F(CUDA_MEMCPY2D, srcY);
	F(CUDA_MEMCPY2D, srcMemoryType);
	F(CUDA_MEMCPY2D, srcHost);
	F(CUDA_MEMCPY2D, srcDevice);
	F(CUDA_MEMCPY2D, srcArray);
	F(CUDA_MEMCPY2D, srcPitch);
	F(CUDA_MEMCPY2D, dstXInBytes);
	F(CUDA_MEMCPY2D, dstY);
	F(CUDA_MEMCPY2D, dstMemoryType);
	F(CUDA_MEMCPY2D, dstHost);
	F(CUDA_MEMCPY2D, dstDevice);
	F(CUDA_MEMCPY2D, dstArray);
	F(CUDA_MEMCPY2D, dstPitch);
	F(CUDA_MEMCPY2D, WidthInBytes);
	F(CUDA_MEMCPY2D, Height);
	F(CUDA_MEMCPY3D, srcXInBytes);
	F(CUDA_MEMCPY3D, srcY);
	F(CUDA_MEMCPY3D, srcZ);
	F(CUDA_MEMCPY3D, srcLOD);
	F(CUDA_MEMCPY3D, srcMemoryType);
	F(CUDA_MEMCPY3D, srcHost);
	F(CUDA_MEMCPY3D, srcDevice);
	F(CUDA_MEMCPY3D, srcArray);
	F(CUDA_MEMCPY3D, reserved0);
	F(CUDA_MEMCPY3D, srcPitch);
	F(CUDA_MEMCPY3D, srcHeight);
	F(CUDA_MEMCPY3D, dstXInBytes);
	F(CUDA_MEMCPY3D, dstY);
	F(CUDA_MEMCPY3D, dstZ);
	F(CUDA_MEMCPY3D, dstLOD);
	F(CUDA_MEMCPY3D, dstMemoryType);
	F(CUDA_MEMCPY3D, dstHost);
	F(CUDA_MEMCPY3D, dstDevice);
	F(CUDA_MEMCPY3D, dstArray);
	F(CUDA_MEMCPY3D, reserved1);
	F(CUDA_MEMCPY3D, dstPitch);
	F(CUDA_MEMCPY3D, dstHeight);
	F(CUDA_MEMCPY3D, WidthInBytes);
	F(CUDA_MEMCPY3D, Height);
	F(CUDA_MEMCPY3D, Depth);
}

static void arrays(void)
{
	F(CUDA_ARRAY_DESCRIPTOR, Width);
	F(CUDA_ARRAY_DESCRIPTOR, Height);
	F(CUDA_ARRAY_DESCRIPTOR, Format);
	F(CUDA_ARRAY_DESCRIPTOR, NumChannels);
	F(CUDA_ARRAY3D_DESCRIPTOR, Depth);
	F(CUDA_ARRAY3D_DESCRIPTOR, Format);
	F(CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
	F(CUDA_ARRAY3D_DESCRIPTOR, Flags);
	F(CUDA_ARRAY_MEMORY_REQUIREMENTS, alignment);
	F(CUDA_ARRAY_MEMORY_REQUIREMENTS, reserved);
	F(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type);
	F(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.fd);
	F(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
	F(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags);
	F(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, offset);
	F(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, arrayDesc);
	F(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, numLevels);
}

static void objects(void)
{
	F(CUDA_RESOURCE_DESC, resType);
	F(CUDA_RESOURCE_DESC, res.array.hArray);
	F(CUDA_RESOURCE_DESC, res.mipmap.hMipmappedArray);
	F(CUDA_RESOURCE_DESC, res.linear.devPtr);
	F(CUDA_RESOURCE_DESC, res.linear.format);
	F(CUDA_RESOURCE_DESC, res.linear.numChannels);
	F(CUDA_RESOURCE_DESC, res.linear.sizeInBytes);
	F(CUDA_RESOURCE_DESC, res.pitch2D.devPtr);
	F(CUDA_RESOURCE_DESC, res.pitch2D.format);
	F(CUDA_RESOURCE_DESC, res.pitch2D.numChannels);
	F(CUDA_RESOURCE_DESC, res.pitch2D.width);
	F(CUDA_RESOURCE_DESC, res.pitch2D.height);
	F(CUDA_RESOURCE_DESC, res.pitch2D.pitchInBytes);
	F(CUDA_RESOURCE_DESC, flags);
	F(CUDA_TEXTURE_DESC, addressMode);
	F(CUDA_TEXTURE_DESC, filterMode);
	F(CUDA_TEXTURE_DESC, flags);
	F(CUDA_TEXTURE_DESC, maxAnisotropy);
	F(CUDA_TEXTURE_DESC, mipmapFilterMode);
	F(CUDA_TEXTURE_DESC, mipmapLevelBias);
	F(CUDA_TEXTURE_DESC, minMipmapLevelClamp);
	F(CUDA_TEXTURE_DESC, maxMipmapLevelClamp);
	F(CUDA_TEXTURE_DESC, borderColor);
	F(CUDA_RESOURCE_VIEW_DESC, format);
	F(CUDA_RESOURCE_VIEW_DESC, width);
	F(CUDA_RESOURCE_VIEW_DESC, depth);
	F(CUDA_RESOURCE_VIEW_DESC, firstMipmapLevel);
	F(CUDA_RESOURCE_VIEW_DESC, lastLayer);
}

static void stream_operations(void)
{
	F(CUstreamBatchMemOpParams, operation);
	F(CUstreamBatchMemOpParams, pad);
	F(CUstreamBatchMemOpParams, waitValue.operation);
	F(CUstreamBatchMemOpParams, waitValue.address);
	F(CUstreamBatchMemOpParams, waitValue.value);
	F(CUstreamBatchMemOpParams, waitValue.value64);
	F(CUstreamBatchMemOpParams, waitValue.flags);
	F(CUstreamBatchMemOpParams, waitValue.alias);
	F(CUstreamBatchMemOpParams, writeValue.operation);
	F(CUstreamBatchMemOpParams, writeValue.address);
	F(CUstreamBatchMemOpParams, writeValue.value);
	F(CUstreamBatchMemOpParams, writeValue.value64);
	F(CUstreamBatchMemOpParams, writeValue.flags);
	F(CUstreamBatchMemOpParams, writeValue.alias);
	F(CUstreamBatchMemOpParams, flushRemoteWrites.operation);
	F(CUstreamBatchMemOpParams, flushRemoteWrites.flags);
	F(CUstreamBatchMemOpParams, memoryBarrier.operation);
	F(CUstreamBatchMemOpParams, memoryBarrier.flags);
}

static void launches(void)
{
	F(CUaccessPolicyWindow, base_ptr);
	F(CUaccessPolicyWindow, num_bytes);
	F(CUaccessPolicyWindow, hitRatio);
	F(CUaccessPolicyWindow, hitProp);
	F(CUaccessPolicyWindow, missProp);
	F(CUlaunchMemSyncDomainMap, default_);
	F(CUlaunchMemSyncDomainMap, remote);
	F(CUlaunchAttributeValue, pad);
	F(CUlaunchAttributeValue, accessPolicyWindow);
	F(CUlaunchAttributeValue, cooperative);
	F(CUlaunchAttributeValue, syncPolicy);
	F(CUlaunchAttributeValue, clusterDim.x);
	F(CUlaunchAttributeValue, clusterDim.y);
	F(CUlaunchAttributeValue, clusterDim.z);
	F(CUlaunchAttributeValue, clusterSchedulingPolicyPreference);
	F(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
	F(CUlaunchAttributeValue, programmaticEvent.event);
	F(CUlaunchAttributeValue, programmaticEvent.flags);
	F(CUlaunchAttributeValue, programmaticEvent.triggerAtBlockStart);
	F(CUlaunchAttributeValue, launchCompletionEvent.event);
	F(CUlaunchAttributeValue, launchCompletionEvent.flags);
	F(CUlaunchAttributeValue, priority);
	F(CUlaunchAttributeValue, memSyncDomainMap);
	F(CUlaunchAttributeValue, memSyncDomain);
	F(CUlaunchAttributeValue, preferredClusterDim.x);
	F(CUlaunchAttributeValue, preferredClusterDim.y);
	F(CUlaunchAttributeValue, preferredClusterDim.z);
	F(CUlaunchAttributeValue, deviceUpdatableKernelNode.deviceUpdatable);
	F(CUlaunchAttributeValue, deviceUpdatableKernelNode.devNode);
	F(CUlaunchAttributeValue, sharedMemCarveout);
	F(CUlaunchAttributeValue, nvlinkUtilCentricScheduling);
	F(CUlaunchAttribute, id);
	F(CUlaunchAttribute, pad);
	F(CUlaunchAttribute, value);
	F(CUlaunchConfig, gridDimX);
	F(CUlaunchConfig, gridDimY);
	F(CUlaunchConfig, gridDimZ);
	F(CUlaunchConfig, blockDimX);
	F(CUlaunchConfig, blockDimY);
	F(CUlaunchConfig, blockDimZ);
	F(CUlaunchConfig, sharedMemBytes);
	F(CUlaunchConfig, hStream);
	F(CUlaunchConfig, attrs);
	F(CUlaunchConfig, numAttrs);
}

int main(void)
{
#include "abi_names.inc"
	types();
	small_structures();
	copies();
	arrays();
	objects();
	stream_operations();
	launches();
	return 0;
}
