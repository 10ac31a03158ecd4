//! Published figures the simulator is held to and measurements are compared with: each once.

/// Input, kernel, output in seconds: Table 1 of the contention paper, 13,312² on 1 to 10 containers.
pub const PUBLISHED_PHASES: [[f64; 3]; 10] = [
    [0.189, 10.795, 0.319],
    [0.236, 23.271, 0.333],
    [0.333, 34.782, 0.340],
    [0.471, 46.419, 0.348],
    [0.589, 58.019, 0.361],
    [0.698, 69.374, 0.363],
    [0.808, 81.166, 0.365],
    [0.933, 92.698, 0.382],
    [1.043, 104.007, 0.427],
    [1.143, 115.484, 0.462],
];
