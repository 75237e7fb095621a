// Arrays in graphs: captured copies from and to the host beside a kernel that reads a texture, and
// a copy node between arrays whose parameters are told and changed.

#include "check.h"

__global__ void scale(cudaTextureObject_t texture, float *out, int width)
{
	out[blockIdx.x * width + threadIdx.x] =
		2 * tex2D<float>(texture, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
}

int main()
{
	const int width = 64, height = 48;
	const size_t row = width * sizeof(float);
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	std::vector<float> image = random_floats(width * height), back(image.size());
	cudaResourceDesc resource = {};
	cudaTextureDesc description = {};
	cudaMemcpy3DParms copy = {}, told = {};
	cudaTextureObject_t texture;
	cudaArray_t first, second;
	cudaGraph_t graph;
	cudaGraphNode_t node;
	cudaGraphExec_t exec;
	cudaStream_t stream;
	float *pinned;
	buffer<float> out(image.size());

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMallocHost(&pinned, image.size() * sizeof(float)));
	CHECK(cudaMallocArray(&first, &format, width, height));
	CHECK(cudaMallocArray(&second, &format, width, height));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = first;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaMemcpy2DToArrayAsync(
		first, 0, 0, pinned, row, row, height, cudaMemcpyHostToDevice, stream));
	scale<<<height, width, 0, stream>>>(texture, out, width);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy2DToArrayAsync(
		second, 0, 0, out, row, row, height, cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaMemcpy2DFromArrayAsync(
		back.data(), row, second, 0, 0, row, height, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < image.size(); i++)
			pinned[i] = image[i] + (float)round;
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		for (size_t i = 0; i < image.size(); i++)
			EXPECT(back[i] == 2 * (image[i] + (float)round));
		report("captured", back);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));

	CHECK(cudaGraphCreate(&graph, 0));
	copy.srcArray = first;
	copy.dstArray = second;
	copy.dstPos = make_cudaPos(8, 4, 0);
	copy.extent = make_cudaExtent(16, 16, 1);
	copy.kind = cudaMemcpyDeviceToDevice;
	CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy));
	CHECK(cudaGraphMemcpyNodeGetParams(node, &told));
	EXPECT(told.srcArray == first && told.dstArray == second && told.dstPos.y == 4);
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaGraphExecDestroy(exec));
	copy.srcPos = make_cudaPos(3, 2, 0);
	copy.dstPos = make_cudaPos(40, 20, 0);
	CHECK(cudaGraphMemcpyNodeSetParams(node, &copy));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaMemcpy2DFromArrayAsync(
		back.data(), row, second, 0, 0, row, height, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	report("explicit", back);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFreeArray(first));
	CHECK(cudaFreeArray(second));
	CHECK(cudaFreeHost(pinned));
	return 0;
}
