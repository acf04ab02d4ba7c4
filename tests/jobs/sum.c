/* An MPI program: every rank sends its number and gets the sum, which the first one prints with the number of hosts'
 * images seen. Declared here as Open MPI's library has it, so that its headers (and a Fortran compiler) are not needed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_op_sum[];
int MPI_Init(int *, char ***);
int MPI_Comm_rank(void *, int *);
int MPI_Comm_size(void *, int *);
int MPI_Allreduce(const void *, void *, int, void *, void *, void *);
int MPI_Finalize(void);

int main(int count, char **arguments)
{
    int rank, size, sums[2];
    if (MPI_Init(&count, &arguments))
        return 1;
    MPI_Comm_rank(ompi_mpi_comm_world, &rank);
    MPI_Comm_size(ompi_mpi_comm_world, &size);
    int mine[2] = {rank + 1, access("/etc/mark", F_OK) == 0};
    MPI_Allreduce(mine, sums, 2, ompi_mpi_int, ompi_mpi_op_sum, ompi_mpi_comm_world);
    if (rank == 0)
        printf("%d ranks, sum %d, in the image %d\n", size, sums[0], sums[1]);
    return MPI_Finalize();
}
