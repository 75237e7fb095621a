// Launches with attributes: priority, cooperation, memory domains, an event at the launch's
// completion, several at once.

#include "check.h"

#include <cooperative_groups.h>

__global__ void meet(int *words)
{
	atomicAdd(words, 1);
	cooperative_groups::this_grid().sync();
	if (threadIdx.x == 0)
		atomicAdd(words + 1, words[0]);
}

__global__ void plain(int *word)
{
	atomicAdd(word, 1);
}

int main()
{
	buffer<int> words(4);
	cudaLaunchAttribute attributes[3] = {};
	cudaLaunchConfig_t config = {};
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaStream_t stream, other;
	cudaEvent_t event;
	int least, greatest;
	void *arguments[] = {&words.at};

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	config.gridDim = dim3(20);
	config.blockDim = dim3(64);
	config.stream = stream;
	config.attrs = attributes;
	config.numAttrs = 2;
	attributes[0].id = cudaLaunchAttributeCooperative;
	attributes[0].val.cooperative = 1;
	attributes[1].id = cudaLaunchAttributePriority;
	attributes[1].val.priority = greatest;
	CHECK(cudaLaunchKernelEx(&config, meet, words.at));
	CHECK(cudaStreamSynchronize(stream));
	printf("met %d, sum %d\n", words.read()[0], words.read()[1]);
	EXPECT(words.read()[1] == 20 * 1280);
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaLaunchKernelEx(&config, meet, words.at));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("met in a graph %d, sum %d\n", words.read()[0], words.read()[1]);
	EXPECT(words.read()[0] == 2 * 1280);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	attributes[0] = {};
	attributes[0].id = cudaLaunchAttributeMemSyncDomain;
	attributes[0].val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
	CHECK(cudaLaunchKernelEx(&config, plain, words + 2));
	attributes[0] = {};
	attributes[0].id = cudaLaunchAttributeLaunchCompletionEvent;
	attributes[0].val.launchCompletionEvent.event = event;
	config.numAttrs = 1;
	CHECK(cudaLaunchKernelEx(&config, plain, words + 2));
	CHECK(cudaEventSynchronize(event));
	CHECK(cudaStreamSynchronize(stream));
	attributes[0] = {};
	attributes[0].id = cudaLaunchAttributeProgrammaticEvent;
	attributes[0].val.programmaticEvent.event = event;
	CHECK(cudaLaunchKernelEx(&config, plain, words + 2));
	CHECK(cudaStreamWaitEvent(other, event, 0));
	CHECK(cudaStreamSynchronize(other));
	CHECK(cudaStreamSynchronize(stream));
	printf("plain %d\n", words.read()[2]);
	config.attrs = nullptr;
	config.numAttrs = 0;
	CHECK(cudaLaunchKernelExC(&config, (const void *)plain, arguments));
	CHECK(cudaStreamSynchronize(stream));
	printf("first %d\n", words.read()[0]);
	return 0;
}
