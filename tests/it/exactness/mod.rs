//! The same short training under many settings, and whether it gives the same bits: `just exactness`.
//!
//! Each cell is a process of its own, because LibTorch, MKL and oneDNN read their environment when
//! they are loaded: [`process`] starts it, [`cell`] is what it computes, [`matrix`] compares.

pub mod cell;
pub mod matrix;
pub mod process;
mod tests;

use dapo::algorithm::Problem;
use dapo::base::files;
use dapo::experiment::{Data, Experiment, sets};
use dapo::numerics::{Instructions, vectorised};
use dapo::records::tables;
use dapo::task::data;
use dapo::training::Recipe;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How much a cell computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// 10 updates of pretraining and the experiment as it stands.
    Full,
    /// One update and one rollout step of a handful of rollouts, for emulated processors.
    Tiny,
}

impl Size {
    /// Both stages of the recipe, with as many updates as the size says.
    pub fn cut_recipe(self, mut recipe: Recipe) -> Recipe {
        let (updates, sequences) = match self {
            Self::Full => (5, 16),
            Self::Tiny => (1, 2),
        };
        if self != Self::Full {
            recipe.stages.truncate(1);
        }
        for stage in &mut recipe.stages {
            stage.updates = updates;
            stage.sequences_per_update = sequences;
            stage.warm_up_updates = stage.warm_up_updates.min(1);
        }
        recipe
    }

    /// Rollout steps and their rollouts.
    pub fn cut_experiment(self, experiment: &mut Experiment) {
        match self {
            Self::Full => {}
            Self::Tiny => {
                experiment.training.rollout_steps = 1;
                experiment.training.prompts_per_step = 1;
                experiment.rollout.prompts_per_round = 2;
                experiment.rollout.group_size = 4;
                experiment.training.mini_batch_rollouts = 4;
                experiment.rollout.max_response_tokens = 64;
            }
        }
    }

    /// The tiny size has a few problems of each set, as files in the folder.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn cut_problems(
        self,
        experiment: &mut Experiment,
        folder: &Path,
    ) -> Result<(), tables::TableError> {
        if self != Self::Tiny {
            return Ok(());
        }
        let Ok(sets) = data::load(&experiment.inputs.data) else {
            return Ok(()); // The run will say what is wrong with them.
        };
        files::create_folder(folder)?;
        let write = |name: &str, problems: &[Problem], most: usize| {
            let path = folder.join(format!("{name}.parquet"));
            data::write(&path, &problems[..problems.len().min(most)], false)?;
            Ok::<_, tables::TableError>(path)
        };
        let train = write("train", &sets.train, 64)?;
        let dev = write(sets::DEV, &sets.dev, 2)?;
        let tests = sets.tests.iter().map(|(name, problems)| write(name, problems, 2));
        let test = tests.collect::<Result<_, _>>()?;
        experiment.inputs.data = Data::Files { train, dev, test };
        Ok(())
    }
}

/// What is set for a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// What differs from the baseline.
    pub name: String,
    /// Threads.
    pub threads: u64,
    /// Rollouts of one forward and backward pass.
    pub micro_batch_rollouts: u64,
    /// Responses generated at the same time.
    pub generation_batch_rollouts: u64,
    /// Variables that the loops, LibTorch and its libraries read.
    pub environment: Vec<(&'static str, &'static str)>,
    /// The first process, with so many threads, is killed after its first checkpoint.
    pub killed: Option<u64>,
    /// Every sum is computed again in other orders.
    pub check_orders: bool,
    /// Model of an emulated processor.
    pub processor: Option<String>,
}

/// Variables that change how the loops, LibTorch, MKL and oneDNN compute. A cell has only its own.
pub const VARIABLES: [&str; 9] = [
    vectorised::VARIABLE,
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_DYNAMIC",
];

impl Setting {
    /// What the others are compared with.
    pub fn baseline() -> Self {
        Self {
            name: "baseline: 1 thread, micro-batch 16, generation batch 64".to_string(),
            threads: 1,
            micro_batch_rollouts: 16,
            generation_batch_rollouts: 64,
            environment: Vec::new(),
            killed: None,
            check_orders: false,
            processor: None,
        }
    }

    fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::baseline() }
    }

    /// The baseline and every cell that is compared with it.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::baseline()];
        for threads in [2, 4] {
            all.push(Self { threads, ..Self::named(format!("threads {threads}")) });
        }
        for size in [5, 1, 64] {
            let setting = Self::named(format!("micro-batch {size}"));
            all.push(Self { micro_batch_rollouts: size, ..setting });
        }
        for size in [7, 1, 256] {
            let setting = Self::named(format!("generation batch {size}"));
            all.push(Self { generation_batch_rollouts: size, ..setting });
        }
        for (name, values) in ENVIRONMENT {
            for value in values {
                let setting = Self::named(format!("{name}={value}"));
                all.push(Self { environment: vec![(name, value)], ..setting });
            }
        }
        all.extend([Instructions::Avx2, Instructions::Avx512].map(Self::loops));
        let resumed = Self::named("killed after step 1, resumed");
        all.push(Self { killed: Some(1), ..resumed });
        let resumed = Self::named("killed with 4 threads after step 1, resumed with 2");
        all.push(Self { threads: 2, killed: Some(4), ..resumed });
        all.push(Self::together());
        all
    }

    /// The baseline of the tiny size and what is too slow for a larger one: the loops without
    /// vectors, whose fused multiplications are functions, and emulated processors.
    pub fn slow(processors: &[String]) -> Vec<Self> {
        let mut all = vec![Self::baseline()];
        all.extend(Instructions::ALL.map(Self::loops));
        all.extend(processors.iter().map(|model| Self::emulated(model)));
        all
    }

    fn loops(instructions: Instructions) -> Self {
        let name = instructions.name();
        let setting = Self::named(format!("run-time loops: {name}"));
        Self { environment: vec![(vectorised::VARIABLE, name)], ..setting }
    }

    /// Many settings at once.
    fn together() -> Self {
        let environment = vec![
            ("ATEN_CPU_CAPABILITY", "default"),
            ("MKL_CBWR", "COMPATIBLE"),
            ("ONEDNN_MAX_CPU_ISA", "SSE41"),
            (vectorised::VARIABLE, Instructions::Avx2.name()),
        ];
        Self {
            threads: 2,
            micro_batch_rollouts: 3,
            generation_batch_rollouts: 11,
            environment,
            ..Self::named(
                "2 threads, micro-batch 3, generation batch 11, avx2 loops, default ATen, COMPATIBLE MKL, SSE41 oneDNN",
            )
        }
    }

    /// Every sum again, reversed and shuffled. Means nothing under `fast` arithmetic.
    pub fn orders() -> Self {
        Self { check_orders: true, ..Self::named("every sum also reversed and shuffled") }
    }

    /// The baseline on an emulated processor.
    fn emulated(processor: &str) -> Self {
        Self {
            processor: Some(processor.to_string()),
            ..Self::named(format!("emulated {processor}"))
        }
    }
}

/// Values of each variable.
const ENVIRONMENT: [(&str, &[&str]); 4] = [
    ("ATEN_CPU_CAPABILITY", &["default", "avx2", "avx512"]),
    ("ONEDNN_MAX_CPU_ISA", &["SSE41", "AVX2", "AVX512_CORE"]),
    ("MKL_CBWR", &["COMPATIBLE", "AVX2", "AVX512"]),
    ("MKL_ENABLE_INSTRUCTIONS", &["SSE4_2", "AVX2"]),
];
